package config

import (
	"strings"
	"time"

	"raiderfleet/internal/policy"
)

// key is one line of the table: a key of the file's top level and sections (T is
// Config) or of a raider (T is Raider).
type key[T any] struct {
	path string
	// field points into t; its type is the type of the value.
	field func(t *T) any
	// def is the default as a user would write it. Empty: the zero value, or one that
	// fillDefaults works out.
	def string
	// shown is what the documentation says where def doesn't say enough.
	shown string
	// check says what is wrong with a value that could be read. May be nil.
	check func(t *T) string
	// flag where the name isn't the path with dashes.
	flag string
	// file is set for a path of the file system: made absolute, from where it was written.
	file  bool
	about string
}

// keys is the table of all keys outside of raiders.
func keys() []key[Config] {
	return []key[Config]{
		{
			path: "fleet", field: func(c *Config) any { return &c.Fleet }, def: "default",
			check: func(c *Config) string { return checkName(c.Fleet) },
			about: "names all processes that work together on one NATS",
		},
		{
			path: "nats.urls", field: func(c *Config) any { return &c.NATS.URLs }, flag: "nats", shown: "none",
			check: checkURLs,
			about: "NATS servers, such as nats://127.0.0.1:4222",
		},
		{
			path: "nats.credentials_file", field: func(c *Config) any { return &c.NATS.CredentialsFile }, file: true, shown: "none",
			about: "NATS .creds file",
		},
		{
			path: "nats.tls.ca", field: func(c *Config) any { return &c.NATS.TLS.CA }, file: true, shown: "the system's",
			about: "PEM file with the authorities that the servers' certificates are checked against",
		},
		{
			path: "nats.tls.cert", field: func(c *Config) any { return &c.NATS.TLS.Cert }, file: true, shown: "none",
			about: "PEM file with our own certificate; with key",
		},
		{
			path: "nats.tls.key", field: func(c *Config) any { return &c.NATS.TLS.Key }, file: true, shown: "none",
			about: "PEM file with the key of our own certificate; with cert",
		},
		{
			path: "nats.embedded", field: func(c *Config) any { return &c.NATS.Embedded }, def: "false",
			about: "run the NATS server in the process; instead of urls",
		},
		{
			path: "replicas", field: func(c *Config) any { return &c.Replicas }, def: "1",
			check: func(c *Config) string {
				if c.Replicas != 1 && c.Replicas != 3 {
					return "must be 1 or 3"
				}
				return ""
			},
			about: "how many servers keep each stream: 1, or 3 on a cluster",
		},
		{
			path: "state_dir", field: func(c *Config) any { return &c.StateDir }, file: true,
			shown: "$XDG_STATE_HOME/raiderfleet, else ~/.local/state/raiderfleet",
			check: func(c *Config) string { return checkNotEmpty(c.StateDir) },
			about: "where this host's processes keep their state",
		},
		{
			path: "ack_wait", field: func(c *Config) any { return &c.AckWait }, def: "30s",
			check: func(c *Config) string {
				if c.AckWait < time.Second || c.AckWait > time.Hour {
					return "must be from 1s to 1h"
				}
				return ""
			},
			about: "how long a worker may be silent before another takes its lanes; the same in the whole fleet",
		},
		{
			path: "frontdoor.listen", field: func(c *Config) any { return &c.FrontDoor.Listen }, def: "127.0.0.1:38421", flag: "listen",
			check: func(c *Config) string { return checkHostPort(c.FrontDoor.Listen) },
			about: "host:port for ACP over TCP; port 0 takes a free one",
		},
		{
			path: "frontdoor.http", field: func(c *Config) any { return &c.FrontDoor.HTTP }, def: "127.0.0.1:38080", flag: "http",
			check: func(c *Config) string {
				if c.FrontDoor.HTTP == NoHTTP {
					return ""
				}
				return checkHostPort(c.FrontDoor.HTTP)
			},
			about: "host:port for ACP over HTTP and WebSocket; port 0 takes a free one, none is no listener",
		},
		{
			path: "frontdoor.max_line", field: func(c *Config) any { return &c.FrontDoor.MaxLine }, def: "32MiB",
			check: func(c *Config) string {
				if c.FrontDoor.MaxLine < 64*kib || c.FrontDoor.MaxLine > gib {
					return "must be from 64KiB to 1GiB"
				}
				return ""
			},
			about: "the longest line that a client may send",
		},
		{
			path: "worker.name", field: func(c *Config) any { return &c.Worker.Name }, flag: "name", shown: "the host's name",
			check: func(c *Config) string { return checkName(c.Worker.Name) },
			about: "the worker's name, one of its own for each; its id adds a random part at every start",
		},
		{
			path: "worker.capacity", field: func(c *Config) any { return &c.Worker.Capacity }, flag: "capacity", shown: "two a CPU",
			check: func(c *Config) string { return checkRange(c.Worker.Capacity, 1, 10_000) },
			about: "how many runs may be live on the worker",
		},
		{
			path: "worker.max_warm", field: func(c *Config) any { return &c.Worker.MaxWarm }, flag: "max-warm", shown: "four times the capacity",
			check: func(c *Config) string { return checkRange(c.Worker.MaxWarm, 1, 100_000) },
			about: "how many raider processes the worker may have, live ones included",
		},
		{
			path: "worker.raiders", field: func(c *Config) any { return &c.Worker.Raiders }, flag: "raiders", shown: "all",
			about: "names of the raiders that the worker serves",
		},
		{
			path: "worker.allow_bypass", field: func(c *Config) any { return &c.Worker.AllowBypass }, flag: "allow-bypass", def: "false",
			about: "permit the mode bypass of a raider's permissions; else it is as the mode default",
		},
		{
			path: "permission_timeout", field: func(c *Config) any { return &c.PermissionTimeout }, def: "2m",
			about: "how long a permission request waits for an answer before it is refused; 0: for ever",
		},
		{
			path: "cancel_grace", field: func(c *Config) any { return &c.CancelGrace }, def: "5s",
			about: "time between the steps of a cancel that isn't obeyed: cancel, SIGINT, SIGTERM, SIGKILL; 0: only the first",
		},
		{
			path: "reconnect_grace", field: func(c *Config) any { return &c.ReconnectGrace }, def: "15s",
			about: "how long a permission request stays open after its last client went",
		},
		{
			path: "idle_ttl", field: func(c *Config) any { return &c.IdleTTL }, def: "10m",
			about: "how long a raider process without work is kept",
		},
		{
			path: "drain_timeout", field: func(c *Config) any { return &c.DrainTimeout }, def: "1m",
			about: "how long running prompts may take to end when a worker is told to stop",
		},
		{
			path: "max_backlog", field: func(c *Config) any { return &c.MaxBacklog }, def: "1000",
			check: func(c *Config) string { return checkRange(c.MaxBacklog, 1, 1_000_000) },
			about: "how many prompts may wait in a lane, on a slot for each principal",
		},
		{
			path: "logs.keep_events", field: func(c *Config) any { return &c.Logs.KeepEvents }, def: "20",
			check: func(c *Config) string { return checkRange(c.Logs.KeepEvents, 0, 1_000_000) },
			about: "of how many ended runs of a raider or slot the events are kept; 0: of all",
		},
		{
			path: "logs.max_log_size", field: func(c *Config) any { return &c.Logs.MaxLogSize }, def: "1MiB",
			about: "how large the log of a raider or slot gets before its older part goes; 0: no bound",
		},
		{
			path: "logs.max_events_size", field: func(c *Config) any { return &c.Logs.MaxEventsSize }, def: "2GiB",
			check: func(c *Config) string {
				if c.Logs.MaxEventsSize < 16<<20 {
					return "must be at least 16MiB"
				}
				return ""
			},
			about: "the disk that NATS reserves for a fleet's events, and an eighth more for its logs; older ones go; the same in the whole fleet",
		},
		{
			path: "on_disconnect", field: func(c *Config) any { return &c.OnDisconnect }, def: Keep, shown: "keep; drop in a hall's file",
			check: func(c *Config) string { return checkOneOf(c.OnDisconnect, Keep, Drop) },
			about: "what becomes of the waiting prompts of a client that goes, and with the last of a session's clients of the agent's session: keep, or drop (they are forgotten)",
		},
	}
}

// raiderKeys is the table of a raider's keys.
func raiderKeys() []key[Raider] {
	return []key[Raider]{
		{
			path: "name", field: func(r *Raider) any { return &r.Name }, shown: "none, must be given",
			about: "letters, digits, '-' and '_'; not needed where raiders is a mapping by name",
		},
		{
			path: "kind", field: func(r *Raider) any { return &r.Kind }, def: KindACP,
			shown: "acp; stream where there is no command but an engine, model, persona or packs",
			check: func(r *Raider) string { return checkOneOf(r.Kind, KindACP, KindStream, KindDemo) },
			about: "acp: an agent that speaks ACP on stdio; stream: a command for each prompt that writes JSON Lines; demo: the built-in raider without a model",
		},
		{
			path: "command", field: func(r *Raider) any { return &r.Command }, shown: "none, must be given for acp",
			check: checkCommand,
			about: "the agent's command, a list with one word each; never a shell line. None with kind stream: the hall's own raider",
		},
		{
			path: "engine", field: func(r *Raider) any { return &r.Engine }, shown: "none, the raider decides",
			check: func(r *Raider) string { return checkStreamOnly(r, r.Engine != "") },
			about: "the engine that a stream raider is told",
		},
		{
			path: "model", field: func(r *Raider) any { return &r.Model }, shown: "none, the raider decides",
			check: func(r *Raider) string { return checkStreamOnly(r, r.Model != "") },
			about: "the model that a stream raider is told",
		},
		{
			path: "persona", field: func(r *Raider) any { return &r.Persona }, shown: "none",
			check: func(r *Raider) string { return checkStreamOnly(r, r.Persona != "") },
			about: "one more pack of a stream raider, after packs unless it is among them",
		},
		{
			path: "packs", field: func(r *Raider) any { return &r.Packs }, shown: "none",
			check: func(r *Raider) string { return checkStreamOnly(r, len(r.Packs) > 0) },
			about: "the packs that a stream raider is told, in this order",
		},
		{
			path: "permissions.mode", field: func(r *Raider) any { return &r.Permissions.Mode }, def: string(policy.ModeDefault),
			check: func(r *Raider) string { return checkOneOf(r.Permissions.Mode, policy.Modes()...) },
			about: "what happens to a tool call that no rule decides: default asks, plan refuses what changes something, accept_edits allows edits in the session's directory, dont_ask refuses, bypass allows",
		},
		{
			path: "permissions.allow", field: func(r *Raider) any { return &r.Permissions.Allow }, shown: "none",
			about: "rules of what is allowed without asking, see permissions.md",
		},
		{
			path: "permissions.deny", field: func(r *Raider) any { return &r.Permissions.Deny }, shown: "none",
			about: "rules of what is refused, over all others",
		},
		{
			path: "env", field: func(r *Raider) any { return &r.Env }, shown: "none",
			check: checkEnv,
			about: "variables that are set for the raider; never shown",
		},
		{
			path: "pass_env", field: func(r *Raider) any { return &r.PassEnv }, shown: "none; for the hall's own raider the keys of its engines",
			check: checkPassEnv,
			about: "names of the worker's variables that the raider gets too",
		},
		{
			path: "cwd", field: func(r *Raider) any { return &r.Cwd }, file: true, shown: "the session's",
			about: "directory that the raider is started in",
		},
		{
			path: "description", field: func(r *Raider) any { return &r.Description }, shown: "none",
			about: "a line for people",
		},
		{
			path: "on_worker_loss", field: func(r *Raider) any { return &r.OnWorkerLoss }, def: LossFail,
			check: func(r *Raider) string { return checkOneOf(r.OnWorkerLoss, LossFail, LossRetry) },
			about: "what happens to a running prompt whose worker was lost: fail, or retry (it runs again from the start)",
		},
		{
			path: "max_attempts", field: func(r *Raider) any { return &r.MaxAttempts }, def: "3",
			check: func(r *Raider) string { return checkRange(r.MaxAttempts, 1, 100) },
			about: "how often a prompt is tried at most with on_worker_loss: retry",
		},
		{
			path: "max_running", field: func(r *Raider) any { return &r.MaxRunning }, def: "0", shown: "0, only the worker's capacity",
			check: func(r *Raider) string { return checkRange(r.MaxRunning, 0, 10_000) },
			about: "how many of this raider's runs may be live on a worker",
		},
		{
			path: "transcript_budget", field: func(r *Raider) any { return &r.TranscriptBudget }, def: "64KiB",
			check: func(r *Raider) string { return checkRange(int(r.TranscriptBudget), 0, 16<<20) },
			about: "how much of a conversation, the newest of it, an agent is given that can't load its session again; 0: nothing",
		},
		{
			path: "client_methods", field: func(r *Raider) any { return &r.ClientMethods }, def: ClientMethodsClient,
			check: func(r *Raider) string {
				return checkOneOf(r.ClientMethods, ClientMethodsClient, ClientMethodsWorker, ClientMethodsRefuse)
			},
			about: "who answers the raider's requests for files, terminals, forms and extensions: client, the one that sent the running prompt or another of the session's that can; worker, which serves files and terminals itself within the session's directories, and leaves the rest to the client; or refuse",
		},
		{
			path: "open", field: func(r *Raider) any { return &r.Open }, def: OpenEager, shown: "eager; a stream raider has nothing to open",
			check: func(r *Raider) string { return checkOneOf(r.Open, OpenEager, OpenLazy) },
			about: "when a session's agent is started: eager, at session/new, whose answer has its modes and options then; or lazy, with the first prompt. On a slot always with the first prompt",
		},
		{
			path: "idle_ttl", field: func(r *Raider) any { return &r.IdleTTL }, shown: "the fleet's idle_ttl",
			about: "how long a process of this raider without work is kept",
		},
	}
}

// Key is a key of the configuration, for documentation and flags.
type Key struct {
	// Path is the key with its sections: "nats.urls"; "raiders.command" for one of a raider.
	Path string
	// Env and Flag are the names of its variable and flag ("nats", without dashes);
	// empty for a raider's.
	Env, Flag string
	// Default as a user would write it, or a few words.
	Default string
	// About is what the key is for, in a line.
	About string
}

// Keys lists all keys in the order of the documentation.
func Keys() []Key {
	var out []Key
	for _, k := range keys() {
		out = append(out, Key{k.path, k.envName(), k.flagName(), k.defaultText(), k.about})
	}
	for _, k := range raiderKeys() {
		out = append(out, Key{"raiders." + k.path, "", "", k.defaultText(), k.about})
	}
	return out
}

func (k key[T]) envName() string {
	return "RAIDERFLEET_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

func (k key[T]) flagName() string {
	if k.flag != "" {
		return k.flag
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.path)
}

func (k key[T]) defaultText() string {
	if k.shown != "" {
		return k.shown
	}
	return k.def
}
