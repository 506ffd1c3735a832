package main

import (
	"context"
	"io"
	"sync"

	"raiderfleet/internal/acpclient"
)

// client is an ACP client whose reading runs beside a command.
type client struct {
	*acpclient.Client
	once  sync.Once
	stop  context.CancelFunc
	ended chan struct{} // closed when the connection has ended
}

// connectClient starts reading. The connection outlives ctx: the command decides when it
// ends.
func connectClient(ctx context.Context, conn io.ReadWriteCloser, o acpclient.Options) *client {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &client{Client: acpclient.New(conn, conn, o), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = c.Run(life) // who waits for an answer learns of its end
	}()
	return c
}

// end closes the connection and waits for its reading.
func (c *client) end() {
	c.once.Do(func() {
		_ = c.Close() // it may have ended
		c.stop()
	})
	<-c.ended
}
