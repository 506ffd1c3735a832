package bus

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// StoreKeeper is KeepStore with a disk and a clock that are the test's.
type StoreKeeper struct{ k *storeKeeper }

// NewStoreKeeper makes one for a disk of which space tells the free bytes, and the size.
func NewStoreKeeper(s *server.Server, o ServerOptions, space func() (free, total uint64)) StoreKeeper {
	k := newStoreKeeper(s, o)
	k.space = func(string) (uint64, uint64, error) {
		free, total := space()
		return free, total, nil
	}
	return StoreKeeper{k}
}

// Look is one look at the store.
func (k StoreKeeper) Look(now time.Time) { k.k.look(now) }
