package luagate

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// The machine is suspended for longer than a lease: its permit is lost at once, and soon its watchers know.
func TestLeaseEndsWhileTheMachineIsSuspended(t *testing.T) {
	var suspended atomic.Int64
	awake := clock
	clock = func() time.Duration { return awake() + time.Duration(suspended.Load()) }
	rdb := forged(func() any { return []any{"lost", 0} })
	defer rdb.Close()
	g, err := New(rdb, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := g.Semaphore("s", 1)
	s.Lease = time.Hour
	permit := newPermit(s, Permit{ID: "id", Permits: 1}, time.Now().Add(time.Hour).UnixMilli(), clock()+time.Hour)
	lost := permit.Lost()
	if permit.Remaining() == 0 {
		t.Fatal("the permit is lost")
	}
	suspended.Store(int64(2 * time.Hour))
	if left := permit.Remaining(); left != 0 {
		t.Fatalf("the permit has %s left", left)
	}
	select {
	case <-lost:
	case <-time.After(20 * time.Second):
		t.Fatal("the loss is not reported")
	}
}
