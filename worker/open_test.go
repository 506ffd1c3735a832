package worker

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/settings"
	"raiderfleet/subjects"
)

// open publishes a message that opens the session's raider, and what tells that it is.
func (s *session) open() (seq uint64, opened <-chan *nats.Msg) {
	s.f.t.Helper()
	door, err := subjects.NewInstance("fd")
	if err != nil {
		s.f.t.Fatal(err)
	}
	h := subjects.PromptHeader{
		Prompt: subjects.NewPrompt(), Session: s.meta.Session, Principal: s.meta.Principal, Kind: subjects.KindOpen, Priority: "normal",
		Origin: subjects.Origin{FrontDoor: door, Attachment: subjects.NewAttachment()},
	}
	told := make(chan *nats.Msg, 4)
	sub, err := s.f.b.Conn().ChanSubscribe(s.f.f.Client(h.Origin.FrontDoor, h.Origin.Attachment), told)
	if err != nil {
		s.f.t.Fatal(err)
	}
	s.f.t.Cleanup(func() { _ = sub.Unsubscribe() })
	seq, err = s.f.b.Publish(s.f.t.Context(), &nats.Msg{Subject: s.f.f.Backlog(s.meta.Raider, s.meta.Lane, s.meta.Principal), Header: h.Header()})
	if err != nil {
		s.f.t.Fatal(err)
	}
	s.baton()
	return seq, told
}

func (s *session) awaitOpened(opened <-chan *nats.Msg) {
	s.f.t.Helper()
	select {
	case m := <-opened:
		h, err := subjects.ParseClientHeader(m.Header)
		if err != nil || h.Op != subjects.ClientOpened || h.Session != s.meta.Session {
			s.f.t.Fatalf("told %+v, %v", h, err)
		}
	case <-time.After(30 * time.Second):
		s.f.t.Fatal("it was never opened")
	}
}

// waiting is how many messages the backlog has.
func (f *fleet) waiting() int {
	f.t.Helper()
	all, err := f.b.Counts(f.t.Context(), f.f.BacklogStream(), f.f.BacklogAll())
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for _, c := range all {
		n += int(c)
	}
	return n
}

// An open starts the process and notes the settings. It leaves nothing else: no record, no
// outcome, no place. The session's prompt finds the process.
func TestAnOpenLeavesAWarmRaider(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.moded("notepid", f.path("started"))
	spawned := f.watchFleet()
	s := f.session(nil)
	_, opened := s.open()
	s.awaitOpened(opened)
	if a := s.agent(); settings.Mode(a.Settings) != "work" || a.InnerID == "" || a.Home != w.c.Name {
		t.Errorf("noted: %+v", a)
	}
	if n := f.waiting(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	s.warm(w)
	natstest.Eventually(t, 10*time.Second, "its place is free", func() (bool, any) { return w.places.inUse() == 0, w.places.inUse() })
	if records, err := f.b.List(t.Context(), f.f.RunsBucket(), ">"); err != nil || len(records) != 0 {
		t.Errorf("records: %v, %v", records, err)
	}
	if got := w.Lanes(); len(got) != 1 || got[0].Prompt != "" || got[0].State != "warm" || got[0].Session != s.meta.Session {
		t.Errorf("lanes %+v", got)
	}
	p := s.prompt("note pid; settings")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	if !spawned.await(subjects.RaiderSpawned, p).Warm {
		t.Error("the prompt's process was not the one that was opened")
	}
	told := 0
	for _, x := range spawned.w.all() {
		if x.subject == f.f.FleetEvent(subjects.RaiderSpawned) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("spawned was told %d times, of one prompt", told)
	}
	if started := f.notes("started"); len(started) != 1 {
		t.Errorf("started %q", started)
	}
	if k := s.kinds(); k[subjects.EventOutcome] != 1 || k[subjects.EventUser] != 1 || k[subjects.EventSettings] != 1 {
		t.Errorf("events %v", k)
	}
}

// An agent that can't start: the open says nothing, the lane is let go, and the prompt tells.
func TestAnOpenThatFailsIsQuiet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "exit") })
	s := f.session(nil)
	_, opened := s.open()
	s.awaitOpened(opened)
	natstest.Eventually(t, 10*time.Second, "the lane is let go", func() (bool, any) { return w.owned(s.meta.Lane) == nil, "owned" })
	if events := s.events(); len(events) != 0 {
		t.Errorf("events %+v", events)
	}
	f.want(s.prompt("say x"), subjects.RunFailed, "no licence found", 10*time.Second)
}

// An open is tried once: a prompt may wait behind it, and tries by itself.
func TestAnOpenIsTriedOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "failfirst", f.path("starts"), "2") })
	s := f.session(nil)
	_, opened := s.open()
	s.awaitOpened(opened)
	if n := len(f.notes("starts")); n != 1 {
		t.Errorf("started %d times", n)
	}
	f.want(s.prompt("say x"), subjects.RunCompleted, "", 20*time.Second)
}

// A prompt behind an open is not put back for others that wait: the open was no turn.
func TestAPromptBehindAnOpenKeepsItsPlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	w := f.run(func(c *Config) {
		c.Capacity = 1
		c.Raiders[0].Command = raiderCommand(t, "slownew", f.path("opening"), f.path("go"), "notepid", f.path("started"))
	})
	s, other := f.session(nil), f.session(nil)
	_, opened := s.open()
	f.noted("opening", 1)
	if got := w.Lanes(); len(got) != 1 || got[0].Prompt != "" || got[0].Session != s.meta.Session || got[0].State != "starting" {
		t.Errorf("lanes %+v", got)
	}
	p := s.prompt("note pid")
	q := other.prompt("note pid")
	natstest.Eventually(t, 10*time.Second, "others wait", func() (bool, any) { return w.othersWait(t.Context()), false })
	f.touch("go")
	s.awaitOpened(opened)
	f.want(p, subjects.RunCompleted, "", 20*time.Second)
	f.want(q, subjects.RunCompleted, "", 20*time.Second)
	started, ran := f.notes("started"), f.notes("pid")
	if len(started) != 2 || len(ran) != 2 || inside(ran[0]) != "inner-"+started[0] {
		t.Errorf("started %q, ran %q", started, ran)
	}
}

// A session that is closed while its raider is opened: the process ends at once, as it does
// when the worker is told to end.
func TestAnOpenEndsWithItsSessionAndItsWorker(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*session, *testWorker){
		"closed":  func(s *session, _ *testWorker) { s.control(subjects.ControlRequest{Op: subjects.ControlClose}) },
		"drained": func(_ *session, w *testWorker) { w.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3*time.Second)
			w := f.run(func(c *Config) {
				c.DrainTimeout = time.Minute
				c.Raiders[0].Command = raiderCommand(t, "slownew", f.path("opening"), f.path("never"))
			})
			s := f.session(nil)
			s.open()
			pid := f.noted("opening", 1)
			end(s, w)
			f.gone(pid, 20*time.Second)
			if _, err := os.Stat(f.path("never.answered")); err == nil {
				t.Error("it was opened")
			}
		})
	}
}

// On a slot an open would end another session's process, and one of a session that is closed
// would start what nobody wants: both go unheeded.
func TestAnOpenThatIsNotForItGoesUnheeded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	f.moded("notepid", f.path("started"))
	for _, change := range []func(*subjects.SessionMeta){
		slot("1bjorn"),
		func(m *subjects.SessionMeta) { m.State = subjects.SessionClosed },
	} {
		s := f.session(change)
		_, opened := s.open()
		s.awaitOpened(opened)
	}
	if started := f.notes("started"); len(started) != 0 {
		t.Errorf("started %q", started)
	}
}

// An open whose raider has gone from the fleet goes without a word.
func TestAnOpenOfARaiderThatIsGoneGoesQuietly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.ghosts()
	s.open()
	f.sweeper().pass(t, orphanBeats+2)
	if n := f.waiting(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if events := s.events(); len(events) != 0 {
		t.Errorf("events %+v", events)
	}
}
