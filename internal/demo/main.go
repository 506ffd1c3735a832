// Package demo is the demo raider: an ACP agent on stdio, without a model or a
// network, that does what the first word of a prompt says. It asks, fails and
// streams as a real agent would, so that a fleet can be tried and tested.
//
// It is a process of its own and knows nothing of the fleet. Run the prompt
// `help` for the words.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"raiderfleet/internal/rpc"
)

const (
	// eofGrace is what running turns get after the end of the input, first to
	// end by themselves and then to end cancelled.
	eofGrace = time.Second

	envState   = "RAIDERFLEET_DEMO_STATE"
	envJournal = "RAIDERFLEET_DEMO_JOURNAL"
)

// Main serves ACP on stdin and stdout until stdin ends, ctx ends, or a SIGINT
// comes while no turn runs (one that runs is cancelled by it). It returns the
// exit code. Sessions are kept in the directory of --state, else of
// RAIDERFLEET_DEMO_STATE, else in the user's cache directory. The prompt
// `exit CODE` ends the whole process.
//
// With --stream-json it is a stream raider instead: the arguments are one prompt, which it
// runs with its events on stdout and its questions on RAIDERFLEET_PERMISSION_SOCKET, see
// docs/stream-raiders.md. The words are the same.
//
// RAIDERFLEET_DEMO_JOURNAL names a file that gets a line at the start and the
// end of each turn: start or end, boot time in nanoseconds, pid, session,
// prompt.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("state", "", "directory for the sessions")
	once := flags.Bool("stream-json", false, "run one prompt and write its events as JSON Lines")
	var one oneShot
	flags.StringVar(&one.session, "session", "", "with --stream-json: the session to go on with")
	flags.StringVar(&one.engine, "engine", "", "with --stream-json: told in run.started")
	flags.StringVar(&one.model, "model", "", "with --stream-json: told in run.started")
	flags.Var(packList{&one.packs}, "pack", "with --stream-json: told in run.started; may be repeated")
	flags.StringVar(&one.root, "root", "", "with --stream-json: the working directory")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	state, err := stateDir(*dir)
	if err != nil {
		log.Error("no state directory", "error", err)
		return 1
	}

	if *once {
		one.prompt = strings.Join(flags.Args(), " ")
		return one.perform(ctx, newStore(state), journal{path: os.Getenv(envJournal)}, stdout, log)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := &sharedWriter{w: stdout}
	sessions := newStore(state)
	defer sessions.close()
	a := newAgent(sessions, journal{path: os.Getenv(envJournal)}, out, log)
	conn := rpc.NewConn(stdin, out, a, rpc.Options{IDPrefix: "demo-", Logger: log})

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt)
	interrupted := make(chan bool, 1)
	go func() { interrupted <- a.watch(ctx, signals, stop) }()

	runErr := conn.Run(ctx)
	a.settle(eofGrace)
	signal.Stop(signals)
	stop()
	wasInterrupted := <-interrupted
	closeErr := conn.Close()
	switch {
	case wasInterrupted:
		return 130
	case runErr != nil && !errors.Is(runErr, context.Canceled):
		log.Error("connection failed", "error", runErr)
		return 1
	case closeErr != nil:
		log.Error("closing the output failed", "error", closeErr)
		return 1
	}
	return 0
}

// stateDir picks the directory and makes it.
func stateDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(envState)
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the cache directory: %w", err)
		}
		dir = filepath.Join(cache, "raiderfleet", "demo")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the operator's own directory
		return "", fmt.Errorf("making the state directory: %w", err)
	}
	return dir, nil
}

// sharedWriter lets the noise of a turn in between whole messages.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
