package demo

import (
	"encoding/json"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
)

// choices are what a session's client has chosen. Effort is an option of the large model
// only, Verbose is offered to clients that know options that are on or off.
type choices struct {
	Mode    string `json:"mode"`
	Model   string `json:"model"`
	Effort  string `json:"effort"`
	Verbose bool   `json:"verbose"`
}

func firstChoices() choices { return choices{Mode: "work", Model: "small", Effort: "low"} }

// String is what the word settings answers.
func (c choices) String() string {
	text := "mode=" + c.Mode + " model=" + c.Model
	if c.Model == "large" {
		text += " effort=" + c.Effort
	}
	if c.Verbose {
		text += " verbose"
	}
	return text
}

type named struct {
	ID    string `json:"id,omitempty"`
	Value string `json:"value,omitempty"`
	Name  string `json:"name"`
}

func (c choices) modes() map[string]any {
	return map[string]any{
		"currentModeId":  c.Mode,
		"availableModes": []named{{ID: "work", Name: "Work"}, {ID: "plan", Name: "Plan"}},
	}
}

// option is an entry of configOptions.
type option struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Category string  `json:"category,omitempty"`
	Type     string  `json:"type"`
	Current  any     `json:"currentValue"`
	Options  []named `json:"options,omitempty"`
}

// options are what can be chosen now. boolean says that the client knows such options.
func (c choices) options(boolean bool) []option {
	all := []option{{
		ID: "model", Name: "Model", Category: "model", Type: "select", Current: c.Model,
		Options: []named{{Value: "small", Name: "Small"}, {Value: "large", Name: "Large"}},
	}}
	if c.Model == "large" {
		all = append(all, option{
			ID: "effort", Name: "Effort", Category: "thought_level", Type: "select", Current: c.Effort,
			Options: []named{{Value: "low", Name: "Low"}, {Value: "high", Name: "High"}},
		})
	}
	if boolean {
		all = append(all, option{ID: "verbose", Name: "Verbose", Type: "boolean", Current: c.Verbose})
	}
	return all
}

// choose sets an option; why says why not.
func (c *choices) choose(id string, value json.RawMessage, boolean bool) (why string) {
	for _, o := range c.options(boolean) {
		if o.ID != id {
			continue
		}
		if o.Type == "boolean" {
			if json.Unmarshal(value, &c.Verbose) != nil {
				return "the value must be true or false"
			}
			return ""
		}
		var chosen string
		_ = json.Unmarshal(value, &chosen) // what is no string is no value
		for _, offered := range o.Options {
			if offered.Value != chosen {
				continue
			}
			if id == "model" {
				c.Model = chosen
			} else {
				c.Effort = chosen
			}
			return ""
		}
		return "unknown value"
	}
	return "unknown option"
}

// Settings are the modes and options of a new session, as JSON: what session/new answers
// beside its id, to a client that has said nothing of itself.
func Settings() (modes, options json.RawMessage) {
	c := firstChoices()
	modes, err := json.Marshal(c.modes())
	if err != nil {
		return nil, nil // they are ours
	}
	if options, err = json.Marshal(c.options(false)); err != nil {
		return nil, nil
	}
	return modes, options
}

// knowsBoolean says whether the client knows options that are on or off.
func (a *agent) knowsBoolean() bool {
	a.mu.Lock()
	can := json.RawMessage(a.can)
	a.mu.Unlock()
	for _, key := range []string{"session", "configOptions", "boolean"} {
		can, _ = rawjson.Get(can, key)
	}
	return rawjson.IsObject(can)
}

// withSettings adds a session's modes and options to an answer.
func (a *agent) withSettings(answer map[string]any, c choices) map[string]any {
	answer["modes"], answer["configOptions"] = c.modes(), c.options(a.knowsBoolean())
	return answer
}

// set answers session/set_mode and session/set_config_option, also while a turn runs.
func (a *agent) set(r *rpc.Request) {
	var p struct {
		Session string          `json:"sessionId"`
		Mode    string          `json:"modeId"`
		Option  string          `json:"configId"`
		Value   json.RawMessage `json:"value"`
	}
	if json.Unmarshal(r.Params, &p) != nil {
		a.fail(r, rpc.CodeInvalidParams, "not a choice")
		return
	}
	boolean := a.knowsBoolean()
	a.setting.Lock()
	defer a.setting.Unlock()
	a.mu.Lock()
	s := a.sessions[p.Session]
	var c choices
	if s != nil {
		c = s.chosen
	}
	a.mu.Unlock()
	if s == nil {
		a.unknown(r, p.Session)
		return
	}
	var why string
	asked, answer := map[string]any{"modeId": p.Mode}, map[string]any{}
	if r.Method == "session/set_mode" {
		if p.Mode != "work" && p.Mode != "plan" {
			why = "unknown mode"
		}
		c.Mode = p.Mode
	} else {
		asked = map[string]any{"configId": p.Option, "value": p.Value}
		why = c.choose(p.Option, p.Value, boolean)
		answer["configOptions"] = c.options(boolean)
	}
	if why != "" {
		a.refuse(r, why, asked)
		return
	}
	if err := a.store.add(s.id, entry{Chosen: &c}); err != nil {
		a.log.Error("choice not stored", "session", s.id, "error", err)
		a.fail(r, rpc.CodeInternal, "the choice could not be stored")
		return
	}
	a.mu.Lock()
	s.chosen = c
	a.mu.Unlock()
	a.reply(r, answer)
}

// refuse answers that a choice is none, with what was asked for as the error's data.
func (a *agent) refuse(r *rpc.Request, why string, asked map[string]any) {
	data, err := json.Marshal(asked)
	if err != nil {
		data = nil
	}
	if err := r.ReplyError(&rpc.Error{Code: rpc.CodeInvalidParams, Message: why, Data: data}); err != nil {
		a.log.Warn("answer not sent", "error", err)
	}
}
