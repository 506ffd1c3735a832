package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

var (
	// ErrNoAsk says that there is no open ask with that id.
	ErrNoAsk = errors.New("no such open ask")
	// ErrDecided says that an ask was decided before.
	ErrDecided = errors.New("decided already")
	// ErrNotOffered says that an option is none of the ask's.
	ErrNotOffered = errors.New("not offered")
)

const (
	// controlTimeout is how long an owner has to answer one request, controlEvery how often
	// it is repeated.
	controlTimeout = time.Second
	controlEvery   = 200 * time.Millisecond
	// answerBound bounds how long an answer is brought to a lane whose owner is changing.
	answerBound = 15 * time.Second
)

// Ask is a permission request that waits for an answer.
type Ask struct {
	Ask       subjects.AskID     `json:"ask"`
	Session   subjects.SessionID `json:"session"`
	Principal subjects.Principal `json:"principal"`
	Raider    subjects.Raider    `json:"raider"`
	Lane      subjects.LaneID    `json:"lane"`
	Prompt    subjects.PromptID  `json:"prompt"`
	// Title and Kind are the tool call's.
	Title   string      `json:"title,omitempty"`
	Kind    string      `json:"kind,omitempty"`
	Options []AskOption `json:"options"`
	Time    time.Time   `json:"time"`
	// Deadline is zero when the ask waits for ever.
	Deadline time.Time `json:"deadline,omitzero"`
}

// AskOption is one answer that is offered.
type AskOption struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Kind is allow_once, allow_always, reject_once or reject_always.
	Kind string `json:"kind"`
}

// Asks lists the open asks of all sessions, the oldest first.
func (f *Fleet) Asks(ctx context.Context) ([]Ask, error) {
	out := []Ask{}
	err := f.values(ctx, f.b.Fleet().AsksBucket(), ">", func(_ string, value []byte) error {
		if a, err := parseAsk(value); err == nil { // else not of this version
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the asks: %w", err)
	}
	slices.SortFunc(out, func(a, b Ask) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Ask, b.Ask)) })
	return out, nil
}

func parseAsk(value []byte) (Ask, error) {
	var b subjects.AskBody
	if err := json.Unmarshal(value, &b); err != nil {
		return Ask{}, err
	}
	var r struct {
		ToolCall struct {
			Title string `json:"title"`
			Kind  string `json:"kind"`
		} `json:"toolCall"`
		Options []struct {
			ID   string `json:"optionId"`
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	if err := json.Unmarshal(b.Request, &r); err != nil {
		return Ask{}, err
	}
	a := Ask{
		Ask: b.Ask, Session: b.Session, Principal: b.Principal, Raider: b.Raider, Lane: b.Lane, Prompt: b.Prompt,
		Title: r.ToolCall.Title, Kind: r.ToolCall.Kind, Options: []AskOption{}, Time: b.Time, Deadline: b.Deadline,
	}
	for _, o := range r.Options {
		a.Options = append(a.Options, AskOption(o))
	}
	return a, nil
}

// Answered is what an ask was answered with.
type Answered struct {
	Ask     subjects.AskID     `json:"ask"`
	Session subjects.SessionID `json:"session"`
	Prompt  subjects.PromptID  `json:"prompt"`
	Option  string             `json:"option"`
	Kind    string             `json:"kind"`
}

// Answer answers an open ask: option is the id of one of its options, the kind of one, or
// "allow" or "reject", which take the option for this once before the one for always. The
// first valid answer decides. ErrNoAsk, ErrDecided, ErrNotOffered.
func (f *Fleet) Answer(ctx context.Context, id, option string) (Answered, error) {
	a, err := f.openAsk(ctx, id)
	if err != nil {
		return Answered{}, err
	}
	o, err := a.option(option)
	if err != nil {
		return Answered{}, err
	}
	outcome, err := json.Marshal(map[string]string{"outcome": "selected", "optionId": o.ID})
	if err != nil {
		return Answered{}, err
	}
	bound, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	req := subjects.ControlRequest{
		Op: subjects.ControlAnswer, Principal: a.Principal, Session: a.Session, Prompt: a.Prompt,
		Ask: a.Ask, Outcome: outcome, By: cancelBy,
	}
	over := func() bool {
		_, err := f.openAsk(bound, id)
		return errors.Is(err, ErrDecided) || errors.Is(err, ErrNoAsk)
	}
	reply, err := f.askControl(bound, a.Lane, req, over)
	switch {
	case errors.Is(err, errOver), err == nil && reply.Decided:
		return Answered{}, fmt.Errorf("%s: %w", id, ErrDecided)
	case err != nil:
		return Answered{}, fmt.Errorf("%s: its worker was not reached: %w", id, err)
	}
	return Answered{Ask: a.Ask, Session: a.Session, Prompt: a.Prompt, Option: o.ID, Kind: o.Kind}, nil
}

// openAsk finds an ask by its id alone.
func (f *Fleet) openAsk(ctx context.Context, id string) (Ask, error) {
	ask, err := subjects.ParseAsk(id)
	if err != nil {
		return Ask{}, fmt.Errorf("%s: %w", id, ErrNoAsk)
	}
	bucket := f.b.Fleet().AsksBucket()
	prefix := "$KV." + bucket + "."
	keys, err := f.b.Subjects(ctx, "KV_"+bucket, prefix+subjects.AskOfFilter(ask))
	if err != nil {
		return Ask{}, err
	}
	if len(keys) == 0 {
		return Ask{}, fmt.Errorf("%s: %w", id, ErrNoAsk)
	}
	r, err := f.b.Get(ctx, bucket, strings.TrimPrefix(keys[0], prefix))
	switch {
	case errors.Is(err, bus.ErrNotFound):
		// The mark of its deletion stays for a minute.
		return Ask{}, fmt.Errorf("%s: %w", id, ErrDecided)
	case err != nil:
		return Ask{}, err
	}
	return parseAsk(r.Value)
}

// option finds what word means.
func (a Ask) option(word string) (AskOption, error) {
	match := func(f func(AskOption) bool) (AskOption, bool) {
		i := slices.IndexFunc(a.Options, f)
		if i < 0 {
			return AskOption{}, false
		}
		return a.Options[i], true
	}
	if o, ok := match(func(o AskOption) bool { return o.ID == word }); ok {
		return o, nil
	}
	kinds := []string{word}
	if word == "allow" || word == "reject" {
		kinds = []string{word + "_once", word + "_always"}
	}
	offered := make([]string, len(a.Options))
	for i, o := range a.Options {
		offered[i] = fmt.Sprintf("%s (%s)", o.ID, o.Kind)
	}
	for _, kind := range kinds {
		if o, ok := match(func(o AskOption) bool { return o.Kind == kind }); ok {
			return o, nil
		}
	}
	return AskOption{}, fmt.Errorf("%s: option %q was %w; there are: %s", a.Ask, word, ErrNotOffered, strings.Join(offered, ", "))
}

// errOver says that what is asked for has no use any more.
var errOver = errors.New("it is over")

// askControl brings a request to the owner of a lane, as a front door does: again and again,
// since the owner may be changing, until it has taken it, over says that it is of no use any
// more (errOver), or ctx ends. Without any owner it is nats.ErrNoResponders at once where
// over can't say more.
func (f *Fleet) askControl(ctx context.Context, lane subjects.LaneID, req subjects.ControlRequest, over func() bool) (subjects.ControlReply, error) {
	tick := time.NewTicker(controlEvery)
	defer tick.Stop()
	for {
		reply, err := f.b.Control(ctx, lane, req, controlTimeout)
		if err == nil && reply.Error == "" {
			return reply, nil
		}
		if err == nil {
			err = errors.New(reply.Error)
		}
		if over() {
			return reply, errOver
		}
		if errors.Is(err, nats.ErrNoResponders) && req.Op == subjects.ControlReset {
			return reply, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return reply, err
		}
	}
}

// WriteAsks writes what asks shows.
func WriteAsks(w io.Writer, asks []Ask, now time.Time) error {
	rows := make([][]string, 0, len(asks))
	for _, a := range asks {
		name := string(a.Raider)
		if slot, ok := a.Lane.Slot(); ok {
			name = slot
		}
		left := "-"
		if !a.Deadline.IsZero() {
			left = "in " + age(a.Deadline, now)
		}
		options := make([]string, len(a.Options))
		for i, o := range a.Options {
			options[i] = cell(o.ID)
		}
		rows = append(rows, []string{
			string(a.Ask), string(a.Session), name, orDash(cell(a.Kind)), age(now, a.Time), left,
			strings.Join(options, ","), orDash(cell(a.Title)),
		})
	}
	return table(w, "nothing is asked", []string{"ASK", "SESSION", "RAIDER", "KIND", "AGE", "DEADLINE", "OPTIONS", "TITLE"}, rows)
}

// WriteAnswered writes what answer did.
func WriteAnswered(w io.Writer, a Answered) error {
	_, err := fmt.Fprintf(w, "%s answered %s\n", a.Ask, cell(a.Option))
	return err
}
