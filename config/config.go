package config

import (
	"time"
)

// Config is what a process of the fleet needs to know. Load fills in every default,
// so a zero in it was asked for. It is not changed after Load and safe to read from
// many goroutines.
type Config struct {
	// File is the file that was read, as an absolute path. Empty when there was none.
	File string
	// Fleet names all processes that work together. Default "default".
	Fleet string
	NATS  NATS
	// Replicas of every stream: 1 or 3. Default 1.
	Replicas int
	// StateDir is where this host's processes keep their state, an absolute path.
	// Default $XDG_STATE_HOME/raiderfleet, else ~/.local/state/raiderfleet.
	StateDir string
	// AckWait is how long a worker may be silent before its lane can be taken.
	// Default 30 s, at least 1 s.
	AckWait   time.Duration
	FrontDoor FrontDoor
	Worker    Worker
	// PermissionTimeout is how long an ask waits for an answer. Default 120 s; 0: for ever.
	PermissionTimeout time.Duration
	// CancelGrace lies between two steps of a cancel that isn't obeyed. Default 5 s;
	// 0: it never gets harsher.
	CancelGrace time.Duration
	// ReconnectGrace is how long an open ask outlives its last client. Default 15 s.
	ReconnectGrace time.Duration
	// IdleTTL is how long a raider process without work is kept. Default 10 min.
	IdleTTL time.Duration
	// DrainTimeout is how long running prompts may take to end at SIGTERM. Default 60 s.
	DrainTimeout time.Duration
	// MaxBacklog bounds the waiting prompts of a lane, on slots those of each principal.
	// Default 1000.
	MaxBacklog int
	// OnDisconnect is what happens to the waiting prompts of a client that goes: Keep
	// (default) or Drop.
	OnDisconnect string
	Logs         Logs
	// Raiders in the order of the file; the first is the default. Never empty.
	Raiders []Raider
	// Hall says that the file is one of the hall's, .raider-hall.yml.
	Hall bool
	// Ignored are the keys of a hall's file that mean nothing here, in its order.
	Ignored []IgnoredKey

	origins  map[string]Origin
	warnings []string
}

// The values of Config.OnDisconnect.
const (
	Keep = "keep"
	Drop = "drop"
)

// NATS says how to reach the fleet's NATS.
type NATS struct {
	// URLs of the servers. They may hold a password: don't log them. Default none.
	URLs []string
	// CredentialsFile is a NATS .creds file, an absolute path. Default none.
	CredentialsFile string
	TLS             TLS
	// Embedded runs the server in the process. Excludes URLs. Default false.
	Embedded bool
}

// TLS names PEM files, by absolute paths. Cert and Key come together.
type TLS struct{ CA, Cert, Key string }

// Size is a number of bytes.
type Size int

// NoHTTP is the value of FrontDoor.HTTP that means no listener.
const NoHTTP = "none"

// FrontDoor configures a front door.
type FrontDoor struct {
	// Listen is the host:port for ACP over TCP. Default 127.0.0.1:38421.
	Listen string
	// HTTP is the host:port for ACP over HTTP and WebSocket, or NoHTTP. Default
	// 127.0.0.1:38080.
	HTTP string
	// MaxLine is the longest line that a client may send. Default 32 MiB.
	MaxLine Size
}

// Worker configures a worker.
type Worker struct {
	// Name of the worker, a subject token. Default the host's name, with what a token
	// can't hold replaced by '-'.
	Name string
	// Capacity is how many runs may be live. Default two a CPU.
	Capacity int
	// MaxWarm is how many raider processes there may be, live ones included. Default
	// four times Capacity, never below it.
	MaxWarm int
	// Raiders that this worker serves, by name. Default (nil) all of them.
	Raiders []string
	// AllowBypass permits the mode bypass of a raider's permissions. Default false.
	AllowBypass bool
}

// Logs bounds what is kept of raiders' logs.
type Logs struct {
	// KeepEvents is of how many ended runs of a raider or slot the events are kept.
	// Default 20; 0: of all.
	KeepEvents int
	// MaxLogSize is how large the log of a raider or slot may get before its older part
	// goes. Default 1 MiB; 0: as large as it gets.
	MaxLogSize Size
	// MaxEventsSize is the disk that NATS reserves for the events of the fleet; older ones
	// go. Default 2 GiB; at least 16 MiB. An eighth of it is reserved for the logs.
	MaxEventsSize Size
}

// Options say where Load looks. The zero value is what a command without flags wants.
type Options struct {
	// Path is the file that --config names. Default: fleet.yml in Dir, then
	// .raider-hall.yml there, then raiderfleet/fleet.yml in the user's config directory,
	// then the built-in configuration with one demo raider.
	Path string
	// Env looks a variable up; one that is empty counts as not set. Default os.LookupEnv.
	Env func(string) (string, bool)
	// Environ is all variables, "NAME=value" each, in which unknown ones are looked for.
	// Default os.Environ, or none when Env is set.
	Environ []string
	// Dir is the working directory. Default the process's.
	Dir string
	// Flags that were given, by the path of their key ("nats.urls"). Lists are
	// separated by commas.
	Flags map[string]string
}

// Load reads the configuration. Its error is a *Problems that holds all that is wrong.
func Load(o Options) (*Config, error) {
	l := newLoader(o)
	l.readFile()
	l.readHallEnv()
	l.readEnv()
	l.lookForUnknown()
	l.readFlags()
	l.fillDefaults()
	l.check()
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return l.c, nil
}

// Warnings are what may be a mistake and does no harm, each a line for a person: variables
// that begin with RAIDERFLEET_ and that nothing reads.
func (c *Config) Warnings() []string { return c.warnings }

// Origin returns where the value of a key ("ack_wait", "raiders.bjorn.cwd") came
// from. A key that isn't known, or was not given, comes from SourceDefault.
func (c *Config) Origin(path string) Origin { return c.origins[path] }

// Source is the kind of place that a value came from.
type Source int

// The sources, each wins over the ones before it.
const (
	SourceDefault Source = iota
	SourceFile
	SourceEnv
	SourceFlag
)

// Origin is where a value came from.
type Origin struct {
	Source Source
	// Name of the variable or flag, or of the file; empty for a default.
	Name string
	// Line in the file.
	Line int
}
