package luagate

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lease is the lease of a permit: its end by the clock of this process, and its renewal in the background. It does not refer to the
// permit, so that a permit that the program no longer references is no longer renewed.
type lease struct {
	semaphore *Semaphore
	id        string
	lost      context.Context // done when the permit is lost
	lose      context.CancelFunc

	mu              sync.Mutex // guards the fields below
	expiresAt       int64      // by the clock of the server
	end             time.Time  // by the clock of this process
	isOver          bool       // released, or known to be lost
	isRenewed       bool
	isWatched       bool
	renewal, expiry *time.Timer
}

func newLease(s *Semaphore, id string, expiresAt int64, end time.Time) *lease {
	lost, lose := context.WithCancel(context.Background())
	return &lease{semaphore: s, id: id, lost: lost, lose: lose, expiresAt: expiresAt, end: end}
}

// endOf counts the end of a lease from an instant before the server's time was now, less 1 ms, because the server rounds.
func endOf(from time.Time, expiresAt, now int64) time.Time {
	return from.Add(millis(expiresAt - now - 1))
}

func (l *lease) serverEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiresAt
}

func (l *lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver {
		return 0
	}
	return max(0, time.Until(l.end))
}

// watch returns a channel that is closed when the permit is lost.
func (l *lease) watch() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isWatched = true
	l.planExpiry()
	return l.lost.Done()
}

// renew starts or ends the renewal in the background.
func (l *lease) renew(isRenewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isRenewed = isRenewed
	l.isWatched = l.isWatched || isRenewed
	l.planRenewal(min(time.Until(l.end), l.semaphore.lease()) / 3)
	l.planExpiry()
}

// finish ends the lease at the holder's request. This is no loss.
func (l *lease) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
}

// refresh starts the lease anew, or returns ErrLost.
func (l *lease) refresh(ctx context.Context) error {
	s, asked := l.semaphore, time.Now()
	arguments := map[string]any{"id": l.id, "lease_ms": s.lease().Milliseconds()}
	word, last, err := s.client.call(ctx, s, "refresh", arguments)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if word == "lost" {
		l.reportLoss()
		return fmt.Errorf("luagate: %s: %w", s.key(), ErrLost)
	}
	if !l.isOver {
		l.expiresAt, l.end = last["expires_at"], endOf(asked, last["expires_at"], last["now"])
		l.planRenewal(min(time.Until(l.end), s.lease()) / 3)
		l.planExpiry()
	}
	return nil
}

// --- Timers. mu is held, except in the functions that they call. ---

func (l *lease) planRenewal(pause time.Duration) {
	stop(l.renewal)
	if l.isRenewed && !l.isOver {
		l.renewal = time.AfterFunc(pause, l.sendRefresh)
	}
}

func (l *lease) planExpiry() {
	stop(l.expiry)
	if l.isWatched && !l.isOver {
		l.expiry = time.AfterFunc(time.Until(l.end), l.expire)
	}
}

func (l *lease) sendRefresh() {
	if l.semaphore.client.isClosed.Load() {
		return
	}
	if l.refresh(context.Background()) != nil { // if it is lost, nothing is planned
		l.mu.Lock()
		defer l.mu.Unlock()
		l.planRenewal(min(max(l.semaphore.lease()/10, 5*time.Millisecond), time.Second))
	}
}

func (l *lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.end) { // otherwise it was refreshed meanwhile
		l.reportLoss()
	}
}

func (l *lease) reportLoss() {
	if !l.isOver {
		l.lose()
	}
	l.close()
}

func (l *lease) close() {
	l.isOver = true
	stop(l.renewal)
	stop(l.expiry)
}

func stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}
