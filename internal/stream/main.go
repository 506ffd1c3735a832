//go:build unix

package stream

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"raiderfleet/internal/rpc"
)

const (
	// stopGrace lies between SIGTERM and SIGKILL for a command when this process is to end.
	// It is shorter than what a worker waits after closing stdin.
	stopGrace = time.Second
	// EnvRaiderBin is the variable that names the program of a raider without a command.
	EnvRaiderBin = "RAIDERFLEET_RAIDER_BIN"
	// EnvHallRaiderBin is the hall's own variable for it; EnvRaiderBin wins.
	EnvHallRaiderBin = "RAIDER_HALL_RAIDER_BIN"
)

// Main serves ACP on stdin and stdout until stdin ends, ctx ends, or SIGINT or SIGTERM
// comes while no run is on. It returns the exit code, when no command runs any more.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = &sharedWriter{w: stderr}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	flags := flag.NewFlagSet("stream-raider", flag.ContinueOnError)
	flags.SetOutput(stderr)
	definition := flags.String("config", "{}", "the raider's definition, JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	config, err := parseConfig(*definition)
	if err != nil || flags.NArg() > 0 {
		log.Error("wrong arguments", "error", err, "surplus", flags.NArg())
		return 2
	}

	clearSockets(socketDirs())
	return newAgent(config, cmp.Or(os.Getenv(EnvRaiderBin), os.Getenv(EnvHallRaiderBin)), stderr, log).serve(ctx, stdin, stdout)
}

// serve answers a connection until it ends, and gives the process's exit code.
func (a *agent) serve(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := rpc.NewConn(stdin, stdout, a, rpc.Options{IDPrefix: "stream-", Logger: a.log})

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan syscall.Signal, 1)
	go func() { ended <- a.watch(ctx, signals, cancel) }()

	// Turns don't end with the connection's context: their commands are to be ended first.
	runErr := conn.Run(ctx)
	// An answer or a question may wait for a worker that reads nothing any more; what waits
	// is given up when the commands have had their time.
	unblock := time.AfterFunc(2*a.stopGrace, func() { _ = conn.Close() })
	a.stop()
	unblock.Stop()
	signal.Stop(signals)
	cancel()
	sig := <-ended
	if err := conn.Close(); err != nil {
		a.log.Debug("closing the output failed", "error", err)
	}
	switch {
	case sig != 0:
		return 128 + int(sig)
	case runErr != nil && !errors.Is(runErr, context.Canceled):
		a.log.Error("connection failed", "error", runErr)
		return 1
	}
	return 0
}

// watch passes signals on to the commands that run. Without one it ends the process by
// cancel and gives the signal; 0 when ctx ends first.
func (a *agent) watch(ctx context.Context, signals <-chan os.Signal, cancel func()) syscall.Signal {
	for {
		select {
		case <-ctx.Done():
			return 0
		case s := <-signals:
			sig, ok := s.(syscall.Signal)
			if ok && !a.signal(sig) {
				cancel()
				return sig
			}
		}
	}
}

// sharedWriter keeps what several goroutines write apart.
type sharedWriter struct {
	mu sync.Mutex // one write at a time
	w  io.Writer
}

// Write implements io.Writer.
func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
