package worker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"raiderfleet/internal/bus"
)

// testWorker is a Worker with its own connection.
type testWorker struct {
	*Worker

	b     *bus.Bus
	log   *logBuffer
	stop  context.CancelFunc
	ended chan struct{}
	err   error // after ended
}

// logBuffer is the worker's log, shown when the test fails.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// idleWorker makes a worker that does not run: the test calls its methods. It answers
// offers.
func (f *fleet) idleWorker(change func(*Config)) *testWorker {
	f.t.Helper()
	return f.workerAt(f.url, change)
}

func (f *fleet) workerAt(url string, change func(*Config)) *testWorker {
	f.t.Helper()
	tw := &testWorker{b: f.connect(url, f.b.Layout()), log: &logBuffer{}, ended: make(chan struct{})}
	c := Config{
		Name: "w", StateDir: f.t.TempDir(), Raiders: []Raider{{Name: bjorn, Command: raiderCommand(f.t), PassEnv: []string{"GORACE"}}},
		Logger: slog.New(slog.NewTextHandler(tw.log, &slog.HandlerOptions{Level: slog.LevelDebug})), DrainTimeout: 300 * time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	var err error
	if tw.Worker, err = New(tw.b, c); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("log of %s:\n%s", tw.Instance(), tw.log)
		}
	})
	return tw
}

// answerOffers makes an idle worker answer what it is asked, as Run does.
func (f *fleet) answerOffers(tw *testWorker) {
	f.t.Helper()
	sub, err := tw.b.Conn().Subscribe(f.f.Worker(tw.Instance()), tw.handleRequest)
	if err != nil {
		f.t.Fatal(err)
	}
	f.flush(tw.b)
	f.t.Cleanup(func() { _ = sub.Unsubscribe() })
}

func (f *fleet) flush(b *bus.Bus) {
	f.t.Helper()
	if err := b.Conn().FlushTimeout(10 * time.Second); err != nil {
		f.t.Fatal(err)
	}
}

// run starts a worker and ends it with the test.
func (f *fleet) run(change func(*Config)) *testWorker {
	f.t.Helper()
	return f.start(f.idleWorker(change))
}

func (f *fleet) start(tw *testWorker) *testWorker {
	f.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	tw.stop = stop
	go func() {
		tw.err = tw.Run(ctx)
		close(tw.ended)
	}()
	f.t.Cleanup(func() { stop(); <-tw.ended })
	select {
	case <-tw.Ready():
	case <-tw.ended:
		f.t.Fatalf("worker ended at its start: %v", tw.err)
	}
	return tw
}
