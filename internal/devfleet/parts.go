package devfleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
	"raiderfleet/internal/port"
	"raiderfleet/worker"
)

// parts are the front door and the worker, each on a connection of its own as in a fleet
// of several processes.
type parts struct {
	buses    []*bus.Bus
	door     *frontdoor.FrontDoor
	worker   *worker.Worker
	listener net.Listener
	taken    error // why the listener's port is another one than was wanted
	web      net.Listener
	webTaken error // as taken
}

func (f *Fleet) start(ctx context.Context, s *server.Server, c Credentials, data string) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	connect := func(name string) (*bus.Bus, error) {
		b, err := bus.Connect(ctx, bus.Options{
			InProcess: s, Name: name, User: c.User, Password: c.Password,
			Layout: f.o.Layout, AckWait: f.o.AckWait, Logger: f.o.Logger,
		})
		if err == nil {
			p.buses = append(p.buses, b)
		}
		return b, err
	}
	doorBus, err := connect("dev front door")
	if err != nil {
		return nil, err
	}
	if err := doorBus.Declare(ctx); err != nil {
		return nil, err
	}
	workerBus, err := connect("dev worker")
	if err != nil {
		return nil, err
	}
	if p.door, err = frontdoor.New(doorBus, f.o.FrontDoor); err != nil {
		return nil, err
	}
	wc, err := f.o.Worker(data)
	if err != nil {
		return nil, err
	}
	if p.worker, err = worker.New(workerBus, wc); err != nil {
		return nil, err
	}
	if p.listener, p.taken, err = listen(ctx, f.o.Listen, f.o.AnyPort); err != nil {
		return nil, err
	}
	p.web, p.webTaken, err = listen(ctx, f.o.HTTP, f.o.AnyHTTPPort)
	return p, err
}

// listen opens a listener; nil when none is wanted. taken says why it is another one than
// was wanted.
func listen(ctx context.Context, address string, anyPort bool) (l net.Listener, taken, err error) {
	if address == "" {
		return nil, nil, nil
	}
	if anyPort {
		l, taken, err = port.ListenNear(ctx, address)
	} else {
		l, err = port.Listen(ctx, address)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen for ACP: %w", err)
	}
	return l, taken, nil
}

// run runs the parts around body, which is called when the worker takes batons. They end
// when body does or when one of them fails, the worker before the front door.
func (p *parts) run(ctx context.Context, body func(context.Context) error) error {
	// The parts outlive ctx: they end in order.
	doorCtx, closeDoor := context.WithCancel(context.WithoutCancel(ctx))
	defer closeDoor()
	workCtx, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	bodyCtx, stop := context.WithCancel(ctx)
	defer stop()

	var mu sync.Mutex // guards errs
	var errs []error
	failed := func(err error) {
		if err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
		stop() // a part that ended takes the others with it
	}
	var door, work sync.WaitGroup
	door.Go(func() { failed(p.door.Run(doorCtx)) })
	if p.listener != nil {
		door.Go(func() { failed(p.door.ServeTCP(doorCtx, p.listener)) })
	}
	if p.web != nil {
		door.Go(func() { failed(p.door.ServeWeb(doorCtx, p.web)) })
	}
	work.Go(func() { failed(p.worker.Run(workCtx)) })
	select {
	case <-p.worker.Ready():
		if err := body(bodyCtx); err != nil {
			failed(err)
		}
	case <-bodyCtx.Done():
	}
	drain()
	work.Wait()
	closeDoor()
	door.Wait()
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(errs...)
}

func (p *parts) close() {
	if p.listener != nil {
		_ = p.listener.Close() // closed already when it has served
	}
	if p.web != nil {
		_ = p.web.Close() // as above
	}
	for _, b := range p.buses {
		b.Close()
	}
}
