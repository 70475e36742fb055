package luagate

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An attempt to acquire may reach the server after the release of its id. So the id is released once more.
func TestLateAttemptsAreReleased(t *testing.T) {
	ctx := context.Background()
	held := []any{"held", 1, serverTime * 1000, serverTime + 30_000, serverTime, 1, 1}
	ok := []any{"released", 0, 0, 1}
	certainlyNotRun := errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	release := func(permit *Permit, err error) {
		if err == nil {
			permit.Release(ctx)
		}
	}
	var tests sync.WaitGroup
	for name, test := range map[string]struct {
		acquires, releases []any
		run                func(s *Semaphore)
		want               int32 // releases, with those that failed
	}{
		"release": {[]any{hangUp, held}, []any{ok}, func(s *Semaphore) { release(s.TryAcquire(ctx, 1)) }, 2},
		"release that failed": {[]any{hangUp, held}, []any{certainlyNotRun, ok}, func(s *Semaphore) {
			release(s.TryAcquire(ctx, 1))
		}, 3},
		"posted release that failed": {[]any{hangUp, held}, []any{certainlyNotRun, ok}, func(s *Semaphore) {
			s.Do(ctx, 1, func(context.Context, *Permit) error { return nil })
		}, 3},
		"several": {[]any{hangUp, []any{"held", serverTime, []any{[]any{1, serverTime * 1000, serverTime + 30_000, 1, 1}}}}, []any{ok}, func(s *Semaphore) {
			if permits, err := s.gate.Several(s.Want(1)).TryAcquire(ctx); err == nil {
				permits.Release(ctx)
			}
		}, 2},
		"refused permanent lease": {[]any{hangUp, held, []any{"lost", serverTime}}, []any{ok}, func(s *Semaphore) {
			s.Lease = Permanent
			s.TryAcquire(ctx, 1)
		}, 2},
		"error of a proxy": {[]any{errors.New("ERR an error that no row names")}, []any{ok}, func(s *Semaphore) {
			s.TryAcquire(ctx, 1)
		}, 2},
		"unexpected reply":  {[]any{[]any{"other"}}, []any{ok}, func(s *Semaphore) { s.TryAcquire(ctx, 1) }, 2},
		"answered attempts": {[]any{held}, []any{ok}, func(s *Semaphore) { release(s.TryAcquire(ctx, 1)) }, 1},
	} {
		tests.Add(1)
		go func() {
			defer tests.Done()
			var released atomic.Int32
			var release, text string // its SHA-1, and its text
			acquire, answer := next(test.acquires), next(test.releases)
			gate, err := New(served(func(words []any) any {
				if words[1] != release && words[1] != text {
					return acquire()
				}
				released.Add(1)
				return answer()
			}), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Error(err)
				return
			}
			defer gate.Close()
			release = gate.scripts["semaphore/release"].SHA1
			_, text = gate.scripts["semaphore/release"].Command(true)
			test.run(gate.Semaphore("line", 1))
			for end := time.Now().Add(30 * time.Second); released.Load() < test.want && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(2 * lateness) // a release too many would have come by now
			if n := released.Load(); n != test.want {
				t.Errorf("%s: %d releases, not %d", name, n, test.want)
			}
		}()
	}
	tests.Wait()
}
