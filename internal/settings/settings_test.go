package settings

import (
	"encoding/json"
	"testing"

	"raiderfleet/subjects"
)

const answer = `{"sessionId":"x","modes":{"availableModes":[{"id":"pl\u0061n","name":"P","_meta":{"n":1.0}}, {"id":"ask"}],"currentModeId":"ask","new":1e400},
 "configOptions":[{"id":"model","type":"select","currentValue":"s","options":[{"group":"g","name":"G","options":[{"value":"s"},{"value":"l\u0061rge"}]}],"new":9007199254740993},
 {"id":"loud","type":"boolean","currentValue":false},{"id":"odd","type":"dial","currentValue":1.50}]}`

func TestChoicesStayRaw(t *testing.T) {
	t.Parallel()
	s := Of(json.RawMessage(answer))
	if Mode(s) != "ask" || !HasMode(s, "plan") || HasMode(s, "party") {
		t.Errorf("modes %s", s.Modes)
	}
	s = WithMode(s, "plan")
	if got, want := string(s.Modes), `{"availableModes":[{"id":"pl\u0061n","name":"P","_meta":{"n":1.0}}, {"id":"ask"}],"currentModeId":"plan","new":1e400}`; got != want {
		t.Errorf("modes %s, want %s", got, want)
	}
	s = WithOption(s, "loud", json.RawMessage("true"))
	s = WithOption(s, "model", json.RawMessage(`"large"`))
	s = WithOption(s, "none", json.RawMessage(`"large"`))
	if got, want := string(s.Options), `[{"id":"model","type":"select","currentValue":"large","options":[{"group":"g","name":"G","options":[{"value":"s"},{"value":"l\u0061rge"}]}],"new":9007199254740993},{"id":"loud","type":"boolean","currentValue":true},{"id":"odd","type":"dial","currentValue":1.50}]`; got != want {
		t.Errorf("options %s, want %s", got, want)
	}
	for _, x := range []struct {
		id, value string
		offered   bool
	}{
		{"model", `"large"`, true},
		{"model", `"l\u0061rge"`, true},
		{"model", `"huge"`, false},
		{"model", `true`, false},
		{"loud", `true`, true},
		{"loud", `"true"`, false},
		{"odd", `7`, true},
	} {
		if o, ok := Find(s, x.id); !ok || o.Offers(json.RawMessage(x.value)) != x.offered {
			t.Errorf("%s offers %s: not %t", x.id, x.value, x.offered)
		}
	}
	if o, _ := Find(s, "loud"); !o.Boolean() {
		t.Error("loud is no boolean")
	}
}

// What is no modes and no options is none.
func TestNoSettings(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "null", "{}", `{"modes":null,"configOptions":null}`, `{"modes":[],"configOptions":{}}`} {
		s := Of(json.RawMessage(answer))
		if !s.None() || Mode(s) != "" || HasMode(s, "") || len(Each(s)) != 0 {
			t.Errorf("%q: %+v", answer, s)
		}
		if s = WithOption(WithMode(s, "a"), "b", json.RawMessage(`"c"`)); !s.None() {
			t.Errorf("%q with a mode and an option: %+v", answer, s)
		}
	}
}

func TestWishesAboveWhatIsSettled(t *testing.T) {
	t.Parallel()
	wish := func(n uint64, method, params string) subjects.Wish {
		return subjects.Wish{N: n, Method: method, Params: json.RawMessage(params)}
	}
	wishes := []subjects.Wish{
		wish(1, subjects.MethodSetMode, `{"modeId":"plan"}`),
		wish(2, subjects.MethodSetOption, `{"configId":"model","value":"large"}`),
		wish(3, subjects.MethodSetOption, `{"configId":"loud","type":"boolean","value":true}`),
	}
	s := With(Of(json.RawMessage(answer)), wishes, 1)
	model, _ := Find(s, "model")
	loud, _ := Find(s, "loud")
	if Mode(s) != "ask" || string(model.Value) != `"large"` || string(loud.Value) != "true" {
		t.Errorf("mode %s, model %s, loud %s", Mode(s), model.Value, loud.Value)
	}
	if SameWish(wishes[0], wishes[1]) || SameWish(wishes[1], wishes[2]) || !SameWish(wishes[1], wish(9, subjects.MethodSetOption, `{"configId":"m\u006fdel"}`)) {
		t.Error("wishes for the same")
	}
}
