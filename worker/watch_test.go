package worker

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// watch collects the core messages on a subject, with the time at which each came.
type watch struct {
	mu   sync.Mutex // guards seen
	seen []watched
}

type watched struct {
	at      time.Time
	subject string
	body    string
	own     subjects.Own
}

// watch starts to listen; on is called with each message, before it can be seen, and may be nil.
func (f *fleet) watch(subject string, on func(watched)) *watch {
	f.t.Helper()
	w := &watch{}
	sub, err := f.b.Conn().Subscribe(subject, func(m *nats.Msg) {
		x := watched{at: time.Now(), subject: m.Subject, body: string(m.Data)}
		_ = json.Unmarshal(m.Data, &x.own) // other subjects have other bodies
		if on != nil {
			on(x)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, x)
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.flush(f.b)
	f.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return w
}

func (w *watch) all() []watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]watched(nil), w.seen...)
}

// types are the types of own messages that came, those of instance only when it is not empty.
func (w *watch) types() []subjects.OwnType {
	var out []subjects.OwnType
	for _, x := range w.all() {
		out = append(out, x.own.Type)
	}
	return out
}
