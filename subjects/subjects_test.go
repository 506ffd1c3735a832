package subjects

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// tokens are the words that subjects are made of, all valid.
type tokens struct {
	fleet      Fleet
	raider     Raider
	class      Class
	lane       LaneID
	session    SessionID
	instance   Instance
	attachment Attachment
	event      FleetEventKind
	principal  Principal
}

func sampleTokens() tokens {
	return tokens{"default", "bjorn", "any", "slot-1bjorn", "s1", "w1-abc", "a1", RaiderQueued, LocalPrincipal}
}

// trio is a builder with its filters and its parser, without their types.
type trio struct {
	name    string
	subject string
	filters []string
	parsed  []string // what the parser must return
	parse   func(Fleet, string) ([]string, error)
}

func one[A ~string](parse func(Fleet, string) (A, error)) func(Fleet, string) ([]string, error) {
	return func(f Fleet, s string) ([]string, error) {
		a, err := parse(f, s)
		return []string{string(a)}, err
	}
}

func two[A, B ~string](parse func(Fleet, string) (A, B, error)) func(Fleet, string) ([]string, error) {
	return func(f Fleet, s string) ([]string, error) {
		a, b, err := parse(f, s)
		return []string{string(a), string(b)}, err
	}
}

func laneOf(parse func(Fleet, string) (Raider, LaneID, Principal, error)) func(Fleet, string) ([]string, error) {
	return func(f Fleet, s string) ([]string, error) {
		r, l, p, err := parse(f, s)
		got := []string{string(r), string(l)}
		if p != "" {
			got = append(got, string(p))
		}
		return got, err
	}
}

func trios(t tokens) []trio {
	f := t.fleet
	r, c, l, s, w, a, e := string(t.raider), string(t.class), string(t.lane), string(t.session), string(t.instance), string(t.attachment), string(t.event)
	seat := []string{r, l}
	if _, slot := t.lane.Slot(); slot {
		seat = append(seat, string(t.principal))
	}
	// A session's lane is no filter, it is the subject itself.
	lane := func(build func(Raider, LaneID) string) []string {
		if s := build(t.raider, t.lane); strings.Contains(s, "*") {
			return []string{s}
		}
		return nil
	}
	return []trio{
		{"Backlog", f.Backlog(t.raider, t.lane, t.principal), slices.Concat(lane(f.BacklogLane), []string{f.BacklogAll(), f.BacklogRaider(t.raider)}), seat, laneOf(Fleet.ParseBacklog)},
		{"Wake", f.Wake(t.raider, t.lane, t.principal), slices.Concat(lane(f.WakeLane), []string{f.WakeAll()}), seat, laneOf(Fleet.ParseWake)},
		{"Ready", f.Ready(t.raider, t.class, t.lane), []string{f.ReadyAll(), f.ReadyClass(t.raider, t.class)}, []string{r, c, l}, func(f Fleet, s string) ([]string, error) {
			r, c, l, err := f.ParseReady(s)
			return []string{string(r), string(c), string(l)}, err
		}},
		{"Own", f.Own(t.raider, t.lane), []string{f.OwnAll()}, []string{r, l}, two(Fleet.ParseOwn)},
		{"Event", f.Event(t.session), []string{f.EventAll()}, []string{s}, one(Fleet.ParseEvent)},
		{"Live", f.Live(t.session), []string{f.LiveAll()}, []string{s}, one(Fleet.ParseLive)},
		{"Transcript", f.Transcript(t.session), []string{f.TranscriptAll()}, []string{s}, one(Fleet.ParseTranscript)},
		{"Log", f.Log(t.instance, t.session), []string{f.LogAll(), f.LogSession(t.session)}, []string{w, s}, two(Fleet.ParseLog)},
		{"Control", f.Control(t.lane), []string{f.ControlAll()}, []string{l}, one(Fleet.ParseControl)},
		{"Worker", f.Worker(t.instance), []string{f.WorkerAll()}, []string{w}, one(Fleet.ParseWorker)},
		{"Client", f.Client(t.instance, t.attachment), []string{f.ClientFrontDoor(t.instance)}, []string{w, a}, two(Fleet.ParseClient)},
		{"Attached", f.Attached(t.session), []string{f.AttachedAll()}, []string{s}, one(Fleet.ParseAttached)},
		{"FleetEvent", f.FleetEvent(t.event), []string{f.FleetEventAll()}, []string{e}, one(Fleet.ParseFleetEvent)},
	}
}

func checkTrios(t *testing.T, words tokens) {
	t.Helper()
	all := trios(words)
	for _, x := range all {
		if got, err := x.parse(words.fleet, x.subject); err != nil || !slices.Equal(got, x.parsed) {
			t.Errorf("Parse%s(%q) = %q, %v; want %q", x.name, x.subject, got, err, x.parsed)
		}
		if !server.IsValidLiteralSubject(x.subject) {
			t.Errorf("%s: %q can't be published to", x.name, x.subject)
		}
		if got, err := x.parse(words.fleet+"x", x.subject); err == nil {
			t.Errorf("Parse%s of another fleet took %q as %q", x.name, x.subject, got)
		}
		for _, filter := range x.filters {
			if !server.IsValidSubject(filter) {
				t.Errorf("%s: filter %q is no subject", x.name, filter)
			}
			for _, other := range all {
				if server.SubjectMatchesFilter(other.subject, filter) != (other.name == x.name) {
					t.Errorf("filter %q of %s and %q of %s", filter, x.name, other.subject, other.name)
				}
			}
			if got, err := x.parse(words.fleet, filter); err == nil {
				t.Errorf("Parse%s took the filter %q as %q", x.name, filter, got)
			}
		}
		for _, other := range all {
			if got, err := x.parse(words.fleet, other.subject); (err == nil) != (other.name == x.name) {
				t.Errorf("Parse%s(%q) = %q, %v", x.name, other.subject, got, err)
			}
		}
	}
}

func TestSubjectRoundTrip(t *testing.T) {
	t.Parallel()
	checkTrios(t, sampleTokens())
	ofSession := sampleTokens()
	ofSession.lane = SessionLane(ofSession.session)
	checkTrios(t, ofSession)
	long := strings.Repeat("a", 128)
	checkTrios(t, tokens{
		Fleet(long), Raider(long), Class(long), SessionLane(SessionID(long[:123])), SessionID(long[:123]),
		Instance(long), Attachment(long), SessionError, Principal(long),
	})
	// Words that are also kinds.
	checkTrios(t, tokens{"rf", "ready", "backlog", "sess-own", "event", "live", "control", "worker.left", "own"})
}

// Each parser of Fleet stands in the table with its builder.
func TestTriosAreComplete(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, x := range trios(sampleTokens()) {
		known[x.name] = true
	}
	fleet := reflect.TypeFor[Fleet]()
	for m := range fleet.Methods() {
		name, isParser := strings.CutPrefix(m.Name, "Parse")
		if !isParser {
			continue
		}
		if !known[name] {
			t.Errorf("Parse%s is not in the table", name)
		}
		if _, ok := fleet.MethodByName(name); !ok {
			t.Errorf("Parse%s has no builder %s", name, name)
		}
	}
}

func TestSubjectsRefused(t *testing.T) {
	t.Parallel()
	words := sampleTokens()
	ofSession := words
	ofSession.lane = SessionLane(words.session)
	for _, x := range append(trios(words), trios(ofSession)...) {
		bad := []string{"", ".", "rf", "rf.default", x.subject + ".", x.subject + ".more", "." + x.subject, "x" + x.subject, strings.ToUpper(x.subject)}
		parts := strings.Split(x.subject, ".")
		bad = append(bad, strings.Join(parts[:len(parts)-1], "."))
		for i := range parts {
			for _, token := range refused() {
				changed := slices.Clone(parts)
				changed[i] = token
				bad = append(bad, strings.Join(changed, "."))
			}
		}
		for _, s := range bad {
			got, err := x.parse(words.fleet, s)
			if err == nil {
				t.Errorf("Parse%s(%q) = %q", x.name, s, got)
			}
			if strings.Join(got, "") != "" {
				t.Errorf("Parse%s(%q) = %q beside an error", x.name, s, got)
			}
		}
	}
}

func FuzzSubjectRoundTrip(f *testing.F) {
	for _, x := range trios(sampleTokens()) {
		f.Add(x.subject, "default", "bjorn", "any", "slot-1bjorn", "s1", "w1-abc", "a1", "local")
	}
	f.Add("rf.default.ready.bjorn.*.>", "a.b", "", " ", "sess-", "*", ">", "é", "*")
	f.Fuzz(func(t *testing.T, subject, fleet, raider, class, lane, session, instance, attachment, principal string) {
		// Any words: those that are refused are left as they were.
		words := sampleTokens()
		keep(&words.fleet, fleet, ParseFleet)
		keep(&words.raider, raider, ParseRaider)
		keep(&words.class, class, ParseClass)
		keep(&words.lane, lane, ParseLane)
		keep(&words.session, session, ParseSession)
		keep(&words.instance, instance, ParseInstance)
		keep(&words.attachment, attachment, ParseAttachment)
		keep(&words.principal, principal, ParsePrincipal)
		checkTrios(t, words)
		// Any subject: what is accepted is what would have been built, and is accepted once.
		accepted := 0
		for _, x := range trios(words) {
			got, err := x.parse(words.fleet, subject)
			if err != nil {
				if strings.Join(got, "") != "" {
					t.Errorf("Parse%s(%q) = %q beside an error", x.name, subject, got)
				}
				continue
			}
			accepted++
			kind := strings.Split(x.subject, ".")[2]
			if again := words.fleet.join(append([]string{kind}, got...)...); again != subject {
				t.Errorf("Parse%s(%q) = %q, which is %q", x.name, subject, got, again)
			}
		}
		if accepted > 1 {
			t.Errorf("%q was accepted %d times", subject, accepted)
		}
	})
}

// keep sets to when s is valid.
func keep[T ~string](to *T, s string, parse func(string) (T, error)) {
	if v, err := parse(s); err == nil {
		*to = v
	}
}
