package bus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// storeEvery is how often a server's store is looked at.
	storeEvery = time.Second
	// maxMinFree is what is kept free of a large disk, in bytes; of a small one it is its
	// minFreeShare-th part. It is for what the server writes by itself, and for the moment
	// until the next look.
	maxMinFree   = 64 << 20
	minFreeShare = 20
	// maxReopenPause bounds the pause between two tries to open a store again.
	maxReopenPause = time.Minute
)

// KeepStore keeps the store of a server of this process usable over a full disk, until ctx
// ends. It blocks. o is what the server was started with.
//
// nats-server remembers that a write to a stream failed, and from then on leaves every
// publish to it unanswered, also when there is room again: clients hang. So shortly before
// the disk is full everything is refused, with an error that Publish tells as ErrNoSpace,
// and a store whose writes failed all the same is opened again as soon as there is room.
// What was acknowledged is in it. Clients stay connected; their requests find no JetStream
// for a moment, and are repeated.
//
// A server of a cluster is left as it is: after a failed write it leaves JetStream to the
// others, and a person has to start it again.
func KeepStore(ctx context.Context, s *server.Server, o ServerOptions) {
	if o.Cluster != nil {
		<-ctx.Done()
		return
	}
	k := newStoreKeeper(s, o)
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			k.look(now)
		case <-ctx.Done():
			return
		}
	}
}

// storeKeeper is used by one goroutine.
type storeKeeper struct {
	s   *server.Server
	dir string
	log *slog.Logger
	// space is diskSpace, but in tests.
	space func(dir string) (free, total uint64, err error)

	refuses bool // everything that is to be stored
	broken  bool // the store was found to be when looked at last
	again   time.Time
	pause   time.Duration
}

func newStoreKeeper(s *server.Server, o ServerOptions) *storeKeeper {
	k := &storeKeeper{s: s, dir: o.StoreDir, log: o.Logger, space: diskSpace}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	return k
}

// look does what there is to do.
func (k *storeKeeper) look(now time.Time) {
	free, total, err := k.space(k.dir)
	if err != nil {
		// Whether there is room then only a write can tell.
		free, total = maxMinFree, maxMinFree
		k.log.Debug("space of the store's disk not known", "store", k.dir, "error", err)
	}
	least := min(maxMinFree, total/minFreeShare)
	switch {
	case free < least:
		k.refuse(free, least)
	case free < least+least/4:
		// Not to and fro.
	default:
		if k.usable(now) {
			k.accept(free)
		}
	}
}

// refuse makes the server refuse what is to be stored.
func (k *storeKeeper) refuse(free, least uint64) {
	if k.refuses || !k.s.JetStreamEnabled() {
		return
	}
	if err := k.limit(1); err != nil {
		k.log.Error("the disk of NATS is nearly full", "store", k.dir, "free", free, "error", err)
		return
	}
	k.refuses = true
	k.log.Error("the disk of NATS is nearly full: nothing more is stored until there is room", "store", k.dir, "free", free, "wanted", least)
}

// accept ends that.
func (k *storeKeeper) accept(free uint64) {
	if !k.refuses || !k.s.JetStreamEnabled() {
		return
	}
	if err := k.limit(-1); err != nil {
		k.log.Error("there is room again for NATS, which can't be told", "error", err)
		return
	}
	k.refuses = false
	k.log.Info("there is room again for NATS", "store", k.dir, "free", free)
}

// limit sets what the account may store, in bytes; -1 is no limit. The server has one
// account, and with more the limit would be theirs to configure.
func (k *storeKeeper) limit(bytes int64) error {
	a := k.s.GlobalAccount()
	if a == nil {
		return fmt.Errorf("the server has no account of its own")
	}
	return a.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: bytes, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}})
}

// usable says whether the store takes writes, now that there is room. One that does not is
// opened again.
func (k *storeKeeper) usable(now time.Time) bool {
	why := k.trouble()
	if why == "" {
		k.broken, k.pause = false, 0
		return true
	}
	if !k.broken {
		// One look is not enough: a server that is just being started has no JetStream yet.
		k.broken, k.again = true, now.Add(storeEvery)
		return false
	}
	if now.Before(k.again) {
		return false
	}
	k.pause = min(max(2*k.pause, storeEvery), maxReopenPause)
	k.again = now.Add(k.pause)
	k.log.Warn("the store of NATS is opened again", "store", k.dir, "why", why)
	if err := k.s.ShutdownJetStream(); err != nil {
		k.log.Error("the store of NATS can't be closed", "error", err)
		return false
	}
	// With a limit of its size that is worked out anew.
	if err := k.s.EnableJetStream(&server.JetStreamConfig{StoreDir: k.dir}); err != nil {
		k.log.Error("the store of NATS can't be opened again, yet", "error", err)
		return false
	}
	k.refuses = false // an account that was opened has no limit
	return false      // so the next look says
}

// trouble says why a store with room is not usable, "" when it is.
func (k *storeKeeper) trouble() string {
	if !k.s.JetStreamEnabled() {
		return "JetStream is not enabled"
	}
	// Only that: what else it finds does not go by opening the store again.
	for _, e := range k.s.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if strings.Contains(e.Error, "write error") {
			return e.Error
		}
	}
	// The limit is three quarters of what was free at the start, and of what was stored: too
	// little, when the disk was full then.
	c, used := k.s.JetStreamConfig(), k.used()
	free, _, err := k.space(k.dir)
	if c == nil || err != nil || used < c.MaxStore {
		return ""
	}
	if limit := (int64(min(free, 1<<62)) + used) / 4 * 3; limit > used {
		return fmt.Sprintf("its limit of %d bytes is older than the room there is", c.MaxStore)
	}
	return ""
}

// used is how many bytes the store has.
func (k *storeKeeper) used() int64 {
	info, err := k.s.Jsz(nil)
	if err != nil {
		return 0
	}
	return int64(min(info.Store, 1<<62))
}
