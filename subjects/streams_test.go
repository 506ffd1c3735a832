package subjects

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

func testLayout(fleet Fleet, replicas int) Layout {
	return Layout{Fleet: fleet, Replicas: replicas, MaxBacklog: 500}
}

// byName returns the declarations under their last word: BACKLOG, RUNS, …
func byName(t *testing.T, l Layout) map[string]jetstream.StreamConfig {
	t.Helper()
	out := map[string]jetstream.StreamConfig{}
	for _, c := range l.Streams() {
		name := c.Name[strings.LastIndex(c.Name, "_")+1:]
		if _, twice := out[name]; twice {
			t.Errorf("%s is declared twice", c.Name)
		}
		out[name] = c
	}
	return out
}

func TestEveryStream(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		streams := testLayout("default", replicas).Streams()
		if len(streams) != 11 {
			t.Errorf("%d streams", len(streams))
		}
		for _, c := range streams {
			if c.AllowDirect || c.MirrorDirect {
				t.Errorf("%s: direct reads are on", c.Name)
			}
			if c.Replicas != replicas || c.Storage != jetstream.FileStorage {
				t.Errorf("%s: %d replicas, %v", c.Name, c.Replicas, c.Storage)
			}
			if c.Metadata[ConfigVersionKey] != strconv.Itoa(ConfigVersion) {
				t.Errorf("%s: metadata %v", c.Name, c.Metadata)
			}
			if c.MaxMsgs != -1 || c.MaxMsgSize != -1 || c.NoAck {
				t.Errorf("%s: %+v", c.Name, c)
			}
		}
	}
	memory := testLayout("default", 1)
	memory.Memory = true
	for _, c := range memory.Streams() {
		if c.Storage != jetstream.MemoryStorage || c.MaxBytes > memoryBytes {
			t.Errorf("%s of a throw-away fleet: %v, %d bytes", c.Name, c.Storage, c.MaxBytes)
		}
	}
}

func TestStreamDeclarations(t *testing.T) {
	t.Parallel()
	f := Fleet("default")
	s := byName(t, testLayout(f, 3))

	backlog := s["BACKLOG"]
	if backlog.Retention != jetstream.LimitsPolicy || backlog.Discard != jetstream.DiscardNew || !backlog.DiscardNewPerSubject ||
		backlog.MaxMsgsPerSubject != 500 || backlog.MaxAge != 0 || backlog.DenyDelete || backlog.Duplicates != DuplicateWindow {
		t.Errorf("BACKLOG: a prompt could be lost, or a lane not bounded: %+v", backlog)
	}
	if r := backlog.RePublish; r == nil || !r.HeadersOnly || r.Source != f.BacklogAll() || r.Destination != f.WakeAll() {
		t.Errorf("BACKLOG: wake must carry headers only: %+v", r)
	}
	ready := s["READY"]
	if ready.Retention != jetstream.WorkQueuePolicy || ready.MaxMsgsPerSubject != 1 || ready.Discard != jetstream.DiscardNew ||
		!ready.DiscardNewPerSubject || ready.AllowRollup || ready.DenyDelete || ready.MaxAge != 0 || ready.RePublish != nil {
		t.Errorf("READY: one baton a lane, deleted by sequence: %+v", ready)
	}
	own := s["OWN"]
	if own.MaxMsgsPerSubject != 1 || own.Discard != jetstream.DiscardOld || own.MaxAge != 0 || !own.AllowMsgTTL || own.MaxBytes != -1 {
		t.Errorf("OWN: the last message of each lane stays: %+v", own)
	}
	events := s["EVENTS"]
	if events.Discard != jetstream.DiscardOld || events.MaxAge != EventsAge || events.MaxBytes != DefaultEventsBytes {
		t.Errorf("EVENTS: bounded by age and bytes: %+v", events)
	}
	if r := events.RePublish; r == nil || r.HeadersOnly || r.Source != f.EventAll() || r.Destination != f.LiveAll() {
		t.Errorf("EVENTS: live must carry the body: %+v", r)
	}
	if tr := s["TRANSCRIPT"]; tr.MaxAge != 0 || tr.MaxBytes != -1 || tr.Discard != jetstream.DiscardNew {
		t.Errorf("TRANSCRIPT: kept while the session lives: %+v", tr)
	}
	if logs := s["LOGS"]; logs.Discard != jetstream.DiscardOld || logs.MaxAge != LogsAge || logs.MaxBytes != 256<<20 {
		t.Errorf("LOGS: bounded by age and bytes: %+v", logs)
	}
	for _, name := range []string{"RUNS", "SESSIONS", "NODES", "ASKS"} {
		b := s[name]
		if b.Name != "KV_RF_default_"+name || len(b.Subjects) != 1 || b.Subjects[0] != "$KV.RF_default_"+name+".>" {
			t.Errorf("%s is not in the form of a bucket: %s %v", name, b.Name, b.Subjects)
		}
		// MaxAge would end the record of a prompt that still waits.
		if b.MaxMsgsPerSubject != 1 || b.MaxAge != 0 || !b.AllowMsgTTL || b.Discard != jetstream.DiscardNew || !b.DenyDelete {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if p := s["PAYLOADS"]; p.Name != "OBJ_RF_default_PAYLOADS" || len(p.Subjects) != 2 || !p.AllowRollup || p.MaxAge != 0 {
		t.Errorf("PAYLOADS: %+v", p)
	}
}

func TestReadyConsumer(t *testing.T) {
	t.Parallel()
	l := testLayout("default", 3)
	c := l.ReadyConsumer("bjorn", AnyClass, 30*time.Second)
	if c.MaxDeliver != -1 {
		t.Errorf("MaxDeliver %d: a baton would stop being handed out", c.MaxDeliver)
	}
	if c.MaxAckPending != MaxAckPending || MaxAckPending <= 1000 {
		t.Errorf("MaxAckPending %d: the server's default stops lanes that have work", c.MaxAckPending)
	}
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 30*time.Second || c.Replicas != 3 || c.MemoryStorage ||
		c.InactiveThreshold != 0 || c.Durable == "" || c.FilterSubject != l.Fleet.ReadyClass("bjorn", AnyClass) {
		t.Errorf("consumer %+v", c)
	}
	type pair struct {
		r Raider
		c Class
	}
	names := map[string]pair{}
	for _, p := range []pair{
		{"a-b", "c"}, {"a", "b-c"}, {"a_any", "any"}, {"a", "any_any"}, {"a_", "any"}, {"a_b", "any"}, {"a", "b_any"}, {"a", "b__any"}, {"A", "any"}, {"a", "any"},
	} {
		name := l.ReadyConsumer(p.r, p.c, 0).Name
		if other, ok := names[name]; ok {
			t.Errorf("%v and %v share the consumer %s", other, p, name)
		}
		names[name] = p
	}
}

// No message is stored twice, none of one fleet by another, and what is republished is
// not stored again.
func TestStreamsDoNotCollide(t *testing.T) {
	t.Parallel()
	fleets := []Fleet{"default", "default2", "default_BACKLOG", "backlog"}
	var all []jetstream.StreamConfig
	for _, f := range fleets {
		all = append(all, testLayout(f, 1).Streams()...)
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.Name == b.Name {
				t.Errorf("two streams are called %s", a.Name)
			}
			for _, x := range a.Subjects {
				for _, y := range b.Subjects {
					if server.SubjectsCollide(x, y) {
						t.Errorf("%s of %s and %s of %s", x, a.Name, y, b.Name)
					}
				}
			}
		}
		if a.RePublish == nil {
			continue
		}
		for _, b := range all {
			for _, y := range b.Subjects {
				if server.SubjectsCollide(a.RePublish.Destination, y) {
					t.Errorf("%s republishes to %s, which %s stores", a.Name, a.RePublish.Destination, b.Name)
				}
			}
		}
	}
}

// What core requests use must not be stored by any stream.
func TestCoreSubjectsAreNotStored(t *testing.T) {
	t.Parallel()
	f := Fleet("default")
	core := []string{f.WakeAll(), f.LiveAll(), f.ControlAll(), f.WorkerAll(), f.ClientFrontDoor("fd-abc"), f.AttachedAll(), f.FleetEventAll()}
	for _, c := range testLayout(f, 1).Streams() {
		for _, stored := range c.Subjects {
			for _, s := range core {
				if server.SubjectsCollide(stored, s) {
					t.Errorf("%s stores %s", c.Name, s)
				}
			}
		}
	}
}

// What is reserved for events and logs is the configuration's.
func TestEventsBytes(t *testing.T) {
	t.Parallel()
	for _, c := range (Layout{Fleet: "f", EventsBytes: 80 << 20}).Streams() {
		want := map[string]int64{"RF_f_EVENTS": 80 << 20, "RF_f_LOGS": 10 << 20}[c.Name]
		if want == 0 {
			want = -1
		}
		if c.MaxBytes != want {
			t.Errorf("%s has %d bytes, want %d", c.Name, c.MaxBytes, want)
		}
	}
}
