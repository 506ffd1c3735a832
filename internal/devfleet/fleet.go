package devfleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// Options configure a fleet. Zero values are the defaults.
type Options struct {
	// Dir is the state directory. Empty: a throw-away fleet that nobody can join, in a
	// temporary directory that is removed at the end.
	Dir string
	// Memory keeps all messages in memory and everything else in a temporary directory.
	// Set when Dir is empty.
	Memory bool
	// Layout declares the streams; its Memory is set from Memory.
	Layout subjects.Layout
	// AckWait of the fleet. Default 30 s.
	AckWait time.Duration
	// FrontDoor configures the front door.
	FrontDoor frontdoor.Config
	// Worker configures the worker, which keeps its state under the directory that it is
	// called with. Required.
	Worker func(dir string) (worker.Config, error)
	// Listen is the host:port for ACP over TCP. Empty: none.
	Listen string
	// AnyPort takes a free port when that of Listen is taken.
	AnyPort bool
	// HTTP is the host:port for ACP over HTTP and WebSocket. Empty: none. AnyHTTPPort is as
	// AnyPort.
	HTTP        string
	AnyHTTPPort bool
	// LeaveAfter ends the fleet when nobody has used it for so long. 0: never.
	LeaveAfter time.Duration
	Logger     *slog.Logger
}

// Fleet is a fleet in one process.
type Fleet struct{ o Options }

// Serving is a fleet that serves.
type Serving struct {
	Ready Ready
	// FrontDoor serves connections of this process.
	FrontDoor *frontdoor.FrontDoor
	// Worker runs the raiders.
	Worker *worker.Worker
	// HTTPTaken is as Taken.
	HTTPTaken error
	// Taken says who has the port that was wanted, when another one is used; else nil.
	Taken error
}

// New checks the options.
func New(o Options) (*Fleet, error) {
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("state directory %s: must be an absolute path", o.Dir)
	}
	if o.Worker == nil {
		return nil, errors.New("dev fleet: a worker is required")
	}
	if o.Dir == "" {
		o.Memory = true
	}
	if o.AckWait == 0 {
		o.AckWait = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Layout.Memory = o.Memory
	// One server can't keep three copies.
	o.Layout.Replicas = 1
	return &Fleet{o: o}, nil
}

// Run starts the fleet, calls serving when all parts serve, and blocks until ctx ends,
// a part fails, or nobody has used the fleet for LeaveAfter. Then it calls leaving and
// drains: the worker first, so that clients get the answers of runs that end in time. It
// returns when all that it started has ended. Either function may be nil; an error of one
// ends the fleet. ErrRunning when the state directory is another fleet's. Call it once.
func (f *Fleet) Run(ctx context.Context, serving, leaving func(Serving) error) (err error) {
	data := f.o.Dir
	if f.o.Dir != "" {
		lock, err := lockDir(f.o.Dir)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }() // the process's end does it as well
		leaving := filepath.Join(f.o.Dir, leavingName)
		_ = os.Remove(leaving) // of one that was killed
		defer func() { _ = os.Remove(leaving) }()
	}
	if f.o.Memory {
		if data, err = os.MkdirTemp("", "raiderfleet-"); err != nil {
			return fmt.Errorf("temporary state: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	}
	credentials := f.credentials(ctx)
	so := bus.ServerOptions{
		Port: credentials.Port, StoreDir: filepath.Join(data, "nats"),
		User: credentials.User, Password: credentials.Password, Logger: f.o.Logger,
	}
	s, err := bus.StartServer(so)
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !f.o.Memory { // which would be lost by opening the store again
		kept, end := context.WithCancel(context.WithoutCancel(ctx))
		var keeping sync.WaitGroup
		keeping.Go(func() { bus.KeepStore(kept, s, so) })
		defer func() { end(); keeping.Wait() }()
	}
	p, err := f.start(ctx, s, credentials, data)
	if err != nil {
		return err
	}
	defer p.close()
	ready, err := f.ready(s, p, credentials)
	if err != nil {
		return err
	}
	return p.run(ctx, func(ctx context.Context) error { return f.serve(ctx, s, p, ready, serving, leaving) })
}

// anyPort lets the server take a free port.
const anyPort = -1

// credentials are those of the last fleet on the state directory, with its port if that
// is free: who was connected to it finds this one. Else new ones.
func (f *Fleet) credentials(ctx context.Context) Credentials {
	fresh := Credentials{User: "raiderfleet", Password: random(), Port: anyPort}
	if f.o.Dir == "" {
		return fresh
	}
	last, err := ReadCredentials(filepath.Join(f.o.Dir, credentialsName))
	if err != nil {
		return fresh // none yet, or one that is damaged
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(last.Port)))
	if err != nil || last.Port == 0 || l.Close() != nil {
		last.Port = anyPort
	}
	return last
}

// ready is what the ready file will say; the credentials are written here.
func (f *Fleet) ready(s *server.Server, p *parts, c Credentials) (Ready, error) {
	r := Ready{
		PID: os.Getpid(), ID: random(), NATS: s.ClientURL(), StateDir: f.o.Dir,
		Fleet: string(f.o.Layout.Fleet), AckWait: f.o.AckWait.String(),
	}
	if p.listener != nil {
		r.ACP = p.listener.Addr().String()
	}
	if p.web != nil {
		r.HTTP = p.web.Addr().String()
	}
	for _, fr := range f.o.FrontDoor.Raiders {
		r.Raiders = append(r.Raiders, Raider{
			Name: string(fr.Name), Description: fr.Description,
			Image: fr.Prompt.Image, Audio: fr.Prompt.Audio, EmbeddedContext: fr.Prompt.EmbeddedContext,
			Eager: fr.Eager,
		})
	}
	if f.o.Dir == "" {
		return r, nil
	}
	r.Credentials = filepath.Join(f.o.Dir, credentialsName)
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		c.Port = a.Port
	}
	if err := writeJSON(r.Credentials, c); err != nil {
		return Ready{}, fmt.Errorf("NATS credentials: %w", err)
	}
	return r, nil
}

// serve says that the fleet serves and waits for its end.
func (f *Fleet) serve(ctx context.Context, s *server.Server, p *parts, r Ready, serving, leaving func(Serving) error) error {
	announce := func() error { return nil }
	withdraw := announce
	if f.o.Dir != "" {
		path := filepath.Join(f.o.Dir, readyName)
		announce = func() error { return WriteReady(path, r) }
		withdraw = func() error { return RemoveReady(path, r) }
	}
	if err := announce(); err != nil {
		return err
	}
	call := func(f func(Serving) error) error {
		if f == nil {
			return nil
		}
		return f(Serving{Ready: r, FrontDoor: p.door, Worker: p.worker, Taken: p.taken, HTTPTaken: p.webTaken})
	}
	err := call(serving)
	if err == nil {
		idle := idle{
			after: f.o.LeaveAfter, announce: announce, withdraw: withdraw,
			used: func() bool {
				return p.door.Busy() || p.worker.Busy() || s.NumClients() > len(p.buses)
			},
		}
		err = idle.wait(ctx)
	}
	if f.o.Dir != "" {
		// Before the other one goes: who looks finds either.
		err = errors.Join(err, WriteReady(filepath.Join(f.o.Dir, leavingName), r))
	}
	return errors.Join(err, withdraw(), call(leaving))
}
