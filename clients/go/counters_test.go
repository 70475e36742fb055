package luagate

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func newTestGate(t *testing.T) *Gate {
	gate, err := New(redis.NewClient(&redis.Options{}), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close() })
	return gate
}

// A loss counts once, however often it is noticed. A permit that was released before its lease ended does not
// count.
func TestLossCountsOnce(t *testing.T) {
	gate := newTestGate(t)
	semaphore := gate.Semaphore("line", 1)
	for want, isReleased := range []bool{true, false} {
		l := newLease(semaphore, "id", 1, clock()+time.Millisecond)
		if isReleased {
			l.finish()
		}
		time.Sleep(2 * time.Millisecond)
		for range 2 {
			l.remaining()
		}
		if l.finish() {
			l.announce() // the release found nothing
		}
		if lost := gate.Counters().Lost; lost != uint64(want) {
			t.Errorf("released before: %v. Lost is %d, not %d", isReleased, lost, want)
		}
	}
}

// A failure of the server is no refusal because of other callers.
func TestRefusals(t *testing.T) {
	late := &TimedOutError{cause: context.DeadlineExceeded}
	for _, one := range []struct {
		err              error
		isAnswered       bool
		denied, lineFull uint64
	}{
		{&DeniedError{}, true, 1, 0},
		{&LineFullError{}, true, 1, 1},
		{late, true, 1, 0},
		{late, false, 0, 0},
		{unreachable("line", nil), true, 0, 0},
		{fmt.Errorf("luagate: %w", context.Canceled), true, 0, 0},
		{&AboveLimitError{}, true, 0, 0},
		{nil, true, 0, 0},
	} {
		gate := newTestGate(t)
		gate.counts.refuse(one.err, one.isAnswered)
		if got, want := gate.Counters(), (Counters{Denied: one.denied, LineFull: one.lineFull}); got != want {
			t.Errorf("%v: got %+v, not %+v", one.err, got, want)
		}
	}
}
