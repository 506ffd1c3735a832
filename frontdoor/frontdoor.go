package frontdoor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// What happens to the waiting prompts of a client that goes.
const (
	// OnDisconnectKeep leaves them: they run, and any client that loads the session sees it.
	OnDisconnectKeep = "keep"
	// OnDisconnectDrop cancels those of the client's own that have not started, and forgets
	// the agent's session when it was the session's last client.
	OnDisconnectDrop = "drop"
)

// defaultEOFGrace is a running turn's time after the end of the client's input.
const defaultEOFGrace = 5 * time.Second

// PromptCapabilities says which content a raider takes beyond text and links.
type PromptCapabilities struct {
	// Never left out: clients take a missing member in different ways.
	Image           bool `json:"image"`
	Audio           bool `json:"audio"`
	EmbeddedContext bool `json:"embeddedContext"`
}

// Raider is what a front door knows of a raider.
type Raider struct {
	Name        subjects.Raider
	Description string
	Prompt      PromptCapabilities
	// Eager: a session's raider is opened at session/new, so that the answer has its modes
	// and options. Default: with the first prompt.
	Eager bool
}

// Config configures a front door. The zero value of a field is its default.
type Config struct {
	// Name is the first part of the instance id. Default "fd".
	Name string
	// Version is told to clients in agentInfo.
	Version string
	// Raiders that sessions can be opened with; the first is the default. Required.
	Raiders []Raider
	// MaxBacklog is the fleet's limit of waiting prompts in a lane, on a slot for each
	// principal. The stream enforces it; here it only completes the text of a refusal.
	MaxBacklog int
	// ReconnectGrace is how long an ask outlives its last client. The worker's timer
	// decides; kept here for the record.
	ReconnectGrace time.Duration
	// OnDisconnect is OnDisconnectKeep (default) or OnDisconnectDrop.
	OnDisconnect string
	// MaxLineBytes is the longest line a client may send. Default 32 MiB.
	MaxLineBytes int
	// DefaultRaider is the raider or slot of a session/new that names none. Default: the
	// first of Raiders.
	DefaultRaider string
	// EOFGrace is how long a turn may go on after the client's input has ended, before
	// it is cancelled. Default 5 s; negative: for ever. ConnOptions can override it.
	EOFGrace time.Duration
	// Logger gets what went wrong; never prompts or frames. Default none.
	Logger *slog.Logger
}

// FrontDoor serves ACP clients. Its methods are safe for many goroutines.
type FrontDoor struct {
	b        *bus.Bus
	c        Config
	fleet    subjects.Fleet
	log      *slog.Logger
	instance subjects.Instance
	host     string
	started  time.Time
	raiders  map[subjects.Raider]Raider
	fallback binding // of a session/new that names no raider
	// submitFor is the constant of that name; tests shorten it.
	submitFor time.Duration
	// openFor is the constant of that name; tests change it.
	openFor time.Duration
	agents  agents
	missed  chan struct{} // capacity 1: a stream was not there

	mu     sync.Mutex // guards the rest
	conns  map[*conn]struct{}
	listen string
}

// New checks the configuration. It starts nothing.
func New(b *bus.Bus, c Config) (*FrontDoor, error) {
	if c.Name == "" {
		c.Name = "fd"
	}
	if c.OnDisconnect == "" {
		c.OnDisconnect = OnDisconnectKeep
	}
	if c.EOFGrace == 0 {
		c.EOFGrace = defaultEOFGrace
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	f := &FrontDoor{
		b: b, c: c, fleet: b.Fleet(), started: time.Now(), submitFor: submitFor, openFor: openFor,
		raiders: make(map[subjects.Raider]Raider, len(c.Raiders)), conns: map[*conn]struct{}{},
		missed: make(chan struct{}, 1),
	}
	var problems []error
	if c.OnDisconnect != OnDisconnectKeep && c.OnDisconnect != OnDisconnectDrop {
		problems = append(problems, fmt.Errorf("on_disconnect is %q, want %q or %q", c.OnDisconnect, OnDisconnectKeep, OnDisconnectDrop))
	}
	if len(c.Raiders) == 0 {
		problems = append(problems, errors.New("no raider is configured"))
	}
	for _, r := range c.Raiders {
		if _, err := subjects.ParseRaider(string(r.Name)); err != nil {
			problems = append(problems, err)
		}
		if _, twice := f.raiders[r.Name]; twice {
			problems = append(problems, fmt.Errorf("raider %q is configured twice", r.Name))
		}
		f.raiders[r.Name] = r
	}
	var err error
	if f.instance, err = subjects.NewInstance(c.Name); err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("front door: %w", errors.Join(problems...))
	}
	if f.fallback, err = f.bind(c.DefaultRaider); err != nil {
		return nil, fmt.Errorf("front door: default raider: %w", err)
	}
	if f.host, err = os.Hostname(); err != nil {
		f.host = "unknown"
	}
	f.log = c.Logger.With("frontdoor", string(f.instance))
	return f, nil
}

// Instance is the front door's id, new at every start.
func (f *FrontDoor) Instance() subjects.Instance { return f.instance }

// Connections is how many clients are connected.
func (f *FrontDoor) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// Busy says whether a client is connected. Runs that go on without a client are the
// worker's to tell.
func (f *FrontDoor) Busy() bool { return f.Connections() > 0 }

// attachments counts the clients' holds on sessions.
func (f *FrontDoor) attachments() int {
	f.mu.Lock()
	conns := make([]*conn, 0, len(f.conns))
	for c := range f.conns {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	n := 0
	for _, c := range conns {
		n += c.size()
	}
	return n
}

func (f *FrontDoor) enter(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[c] = struct{}{}
}

func (f *FrontDoor) leave(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}
