package subjects

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ConfigVersion is written to the metadata of each stream and of each consumer of READY. A
// process never changes one that carries a higher one. Raise it with every change to a
// declaration.
const ConfigVersion = 1

// ConfigVersionKey is the metadata key of ConfigVersion.
const ConfigVersionKey = "raiderfleet.config-version"

// Layout is what the declarations depend on.
type Layout struct {
	Fleet Fleet
	// Replicas is 1 or 3.
	Replicas int
	// MaxBacklog bounds the waiting prompts of one lane; on a slot, each principal's.
	MaxBacklog int
	// EventsBytes bounds EVENTS, in bytes, and an eighth of it LOGS; NATS reserves both. 0:
	// DefaultEventsBytes.
	EventsBytes int64
	// Memory keeps everything in memory: a throw-away fleet, for tests and --memory.
	Memory bool
}

// The bucket and stream names of a fleet.
func (f Fleet) stream(name string) string { return "RF_" + string(f) + "_" + name }

// BacklogStream holds waiting prompts. RF_default_BACKLOG
func (f Fleet) BacklogStream() string { return f.stream("BACKLOG") }

// ReadyStream holds batons. RF_default_READY
func (f Fleet) ReadyStream() string { return f.stream("READY") }

// OwnStream holds claims. RF_default_OWN
func (f Fleet) OwnStream() string { return f.stream("OWN") }

// EventsStream holds what clients may see. RF_default_EVENTS
func (f Fleet) EventsStream() string { return f.stream("EVENTS") }

// TranscriptStream holds conversations. RF_default_TRANSCRIPT
func (f Fleet) TranscriptStream() string { return f.stream("TRANSCRIPT") }

// LogsStream holds raiders' stderr. RF_default_LOGS
func (f Fleet) LogsStream() string { return f.stream("LOGS") }

// RunsBucket holds run records and cancel marks. RF_default_RUNS
func (f Fleet) RunsBucket() string { return f.stream("RUNS") }

// SessionsBucket holds session records. RF_default_SESSIONS
func (f Fleet) SessionsBucket() string { return f.stream("SESSIONS") }

// NodesBucket holds presence. RF_default_NODES
func (f Fleet) NodesBucket() string { return f.stream("NODES") }

// AsksBucket holds open asks. RF_default_ASKS
func (f Fleet) AsksBucket() string { return f.stream("ASKS") }

// PayloadsBucket is the object store of large bodies. RF_default_PAYLOADS
func (f Fleet) PayloadsBucket() string { return f.stream("PAYLOADS") }

// DuplicateWindow is how long a prompt id is remembered by BACKLOG. A front door gives
// up sooner than this, so that a repeated publish is never stored twice.
const DuplicateWindow = 2 * time.Minute

// The ages and sizes of what ends by itself.
const (
	// EventsAge keeps a day of events: cursors and late readers; TRANSCRIPT has the rest.
	EventsAge = 24 * time.Hour
	// DefaultEventsBytes bounds the disk of a fleet with chatty raiders.
	DefaultEventsBytes = 2 << 30
	// LogsAge and logsShare, the part of EVENTS' bytes that LOGS has: a week of stderr, 256
	// MiB, enough to look into a failed run.
	LogsAge   = 7 * 24 * time.Hour
	logsShare = 8
	// ReleasedTTL: after it a lane that nobody owns has no message; none means released.
	ReleasedTTL = time.Hour
	// RunTTL is how long a run record can be read after its message has left BACKLOG.
	RunTTL = 24 * time.Hour
	// GoodbyeTTL is far longer than any baton waits for a look at its owner.
	GoodbyeTTL = 24 * time.Hour
	// memoryBytes bounds EVENTS and LOGS of a throw-away fleet.
	memoryBytes = 128 << 20
)

// MaxAckPending bounds the batons of one consumer that are in the hands of workers,
// warm lanes included: the sum of max_warm over all workers must stay below it, else
// lanes with work would not be handed out. The server's default of 1000 is too low;
// a baton costs the server some hundred bytes.
const MaxAckPending = 1 << 18

func (l Layout) storage() jetstream.StorageType {
	if l.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

func (l Layout) bytes(n int64) int64 {
	if l.Memory && n > memoryBytes {
		return memoryBytes
	}
	return n
}

func (l Layout) base(name string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:      name,
		Subjects:  subjects,
		Storage:   l.storage(),
		Replicas:  l.Replicas,
		Retention: jetstream.LimitsPolicy,
		MaxMsgs:   -1,
		MaxBytes:  -1,
		// -1: the server's max_payload is the bound.
		MaxMsgSize: -1,
		// AllowDirect stays false everywhere: a direct read may be answered by a
		// replica that is behind; prompts got stuck and ended ones ran again.
		AllowDirect: false,
		Metadata:    map[string]string{ConfigVersionKey: strconv.Itoa(ConfigVersion)},
	}
}

func (l Layout) bucket(name string) jetstream.StreamConfig {
	c := l.base("KV_"+name, "$KV."+name+".>")
	// One value a key; a compare-and-set works on the last sequence of the subject.
	c.MaxMsgsPerSubject = 1
	c.Discard = jetstream.DiscardNew
	// As every KV bucket has it: delete markers roll up, messages aren't deleted singly.
	c.AllowRollup = true
	c.DenyDelete = true
	// Run records, presence and goodbyes end by themselves.
	c.AllowMsgTTL = true
	return c
}

// Streams returns the declarations of all streams and buckets of a fleet.
func (l Layout) Streams() []jetstream.StreamConfig {
	f := l.Fleet
	eventsBytes := cmp.Or(l.EventsBytes, DefaultEventsBytes)

	backlog := l.base(f.BacklogStream(), f.BacklogAll())
	backlog.Discard = jetstream.DiscardNew
	backlog.DiscardNewPerSubject = true
	backlog.MaxMsgsPerSubject = int64(l.MaxBacklog)
	backlog.Duplicates = DuplicateWindow
	// Headers only: a prompt may be large and the owner reads it from the stream anyway.
	backlog.RePublish = &jetstream.RePublish{Source: f.BacklogAll(), Destination: f.WakeAll(), HeadersOnly: true}

	ready := l.base(f.ReadyStream(), f.ReadyAll())
	ready.Retention = jetstream.WorkQueuePolicy
	// One baton a lane: a second one is refused (10077), which says 'active already'.
	ready.MaxMsgsPerSubject = 1
	ready.Discard = jetstream.DiscardNew
	ready.DiscardNewPerSubject = true

	own := l.base(f.OwnStream(), f.OwnAll())
	own.MaxMsgsPerSubject = 1
	own.Discard = jetstream.DiscardOld
	own.AllowMsgTTL = true

	events := l.base(f.EventsStream(), f.EventAll())
	events.Discard = jetstream.DiscardOld
	events.MaxAge = EventsAge
	events.MaxBytes = l.bytes(eventsBytes)
	events.RePublish = &jetstream.RePublish{Source: f.EventAll(), Destination: f.LiveAll()}

	transcript := l.base(f.TranscriptStream(), f.TranscriptAll())
	transcript.Discard = jetstream.DiscardNew

	logs := l.base(f.LogsStream(), f.LogAll())
	logs.Discard = jetstream.DiscardOld
	logs.MaxAge = LogsAge
	logs.MaxBytes = l.bytes(eventsBytes / logsShare)

	payloads := l.base("OBJ_"+f.PayloadsBucket(), "$O."+f.PayloadsBucket()+".C.>", "$O."+f.PayloadsBucket()+".M.>")
	payloads.Discard = jetstream.DiscardNew
	payloads.AllowRollup = true

	return []jetstream.StreamConfig{
		backlog, ready, own, events, transcript, logs,
		l.bucket(f.RunsBucket()), l.bucket(f.SessionsBucket()), l.bucket(f.NodesBucket()), l.bucket(f.AsksBucket()),
		payloads,
	}
}

// ReadyConsumer is the durable pull consumer of one raider and class.
// ackWait is how long a worker may keep a baton without a sign of life.
func (l Layout) ReadyConsumer(r Raider, c Class, ackWait time.Duration) jetstream.ConsumerConfig {
	// A '_' of the raider's name is there twice, so that no two pairs share a consumer: a
	// class begins with none.
	name := strings.ReplaceAll(string(r), "_", "__") + "_" + string(c)
	return jetstream.ConsumerConfig{
		Name:          name,
		Durable:       name,
		FilterSubject: l.Fleet.ReadyClass(r, c),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		// -1: a baton is handed out until its lane has been served.
		MaxDeliver:    -1,
		MaxAckPending: MaxAckPending,
		// As many pull requests as there are workers that wait for work.
		MaxWaiting: 4096,
		Replicas:   l.Replicas,
		Metadata:   map[string]string{ConfigVersionKey: strconv.Itoa(ConfigVersion)},
	}
}
