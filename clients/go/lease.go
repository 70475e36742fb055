package luagate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// longestTimer is how long a loss may go unnoticed after the machine was suspended: timers stop meanwhile.
const longestTimer = time.Second

// lease is the lease of a permit: its end by the clock of this process, and its renewal in the background. It does not refer to the
// permit, so that a permit that the program no longer references is no longer renewed.
type lease struct {
	semaphore *Semaphore
	id        string
	lost      context.Context // done when the permit is lost
	lose      context.CancelFunc
	isCounted atomic.Bool // as lost

	mu              sync.Mutex    // guards the fields below; nobody holds it during a call
	duration        time.Duration // of the next refresh
	expiresAt       int64         // by the clock of the server; -1: never
	end             time.Duration // by clock
	isOver          bool          // released, or known to be lost
	isRenewed       bool
	isWatched       bool
	renewal, expiry *time.Timer
}

func newLease(s *Semaphore, id string, expiresAt int64, end time.Duration) *lease {
	lost, lose := context.WithCancel(context.Background())
	return &lease{semaphore: s, id: id, lost: lost, lose: lose, duration: s.firstLease(), isWatched: s.OnLost != nil,
		expiresAt: expiresAt, end: end}
}

// endOf counts the end of a lease from an instant of clock before the server's time was now, less 1 ms, because the server rounds.
func endOf(from time.Duration, expiresAt, now int64) time.Duration {
	return from + millis(expiresAt-now-1)
}

func (l *lease) serverEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiresAt
}

func (l *lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isOver:
		return 0
	case l.expiresAt == -1:
		return Permanent
	}
	left := max(0, until(l.end))
	if left == 0 {
		l.countLoss()
	}
	return left
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
	l.planRenewal(l.third())
	l.planExpiry()
}

// finish ends the lease at the holder's request. This is no loss. It reports whether the permit was held, as far as is known.
func (l *lease) finish() (wasHeld bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasHeld = !l.isOver
	l.close()
	return wasHeld
}

// announce reports a loss. Call it once.
func (l *lease) announce() {
	l.countLoss()
	l.lose()
	l.semaphore.gate.log.warn("luagate: a permit is lost", "semaphore", l.semaphore.key(), "id", l.id)
	if l.semaphore.OnLost != nil {
		go l.semaphore.OnLost(l.id)
	}
}

func (l *lease) countLoss() {
	if !l.isCounted.Swap(true) {
		l.semaphore.gate.counts.lost.Add(1)
	}
}

// makePermanent refreshes the lease for ever.
func (l *lease) makePermanent(b bound) error {
	l.mu.Lock()
	l.duration = Permanent
	l.mu.Unlock()
	return l.refresh(b)
}

// refresh starts the lease anew, or returns ErrLost.
func (l *lease) refresh(b bound) error {
	s, asked := l.semaphore, clock()
	l.mu.Lock()
	ms := l.duration.Milliseconds()
	if l.duration == Permanent {
		ms = 0
	}
	l.mu.Unlock()
	last, err := s.gate.call(b, s, new(tries), "refresh", l.id, ms)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last.word == "lost" {
		l.reportLoss()
		return fmt.Errorf("luagate: %s: %w", s.key(), ErrLost)
	}
	if !l.isOver {
		l.expiresAt, l.end = last.n("expires_at"), endOf(asked, last.n("expires_at"), last.n("now"))
		l.planRenewal(l.third())
		l.planExpiry()
	}
	return nil
}

// --- Timers. mu is held, except in the functions that they call. ---

// third is the time until the next renewal.
func (l *lease) third() time.Duration { return min(until(l.end), l.duration) / 3 }

func (l *lease) planRenewal(pause time.Duration) {
	stop(l.renewal)
	if l.isRenewed && !l.isOver && l.expiresAt != -1 {
		l.renewal = time.AfterFunc(pause, l.sendRefresh)
	}
}

func (l *lease) planExpiry() {
	stop(l.expiry)
	if l.isWatched && !l.isOver && l.expiresAt != -1 {
		l.expiry = time.AfterFunc(min(until(l.end), longestTimer), l.expire)
	}
}

// sendRefresh gives up after a third of the lease, so that a short lease is tried on another connection in time.
func (l *lease) sendRefresh() {
	g := l.semaphore.gate
	l.mu.Lock()
	duration := l.duration
	l.mu.Unlock()
	b, done := g.begin(context.Background(), min(g.callTimeout, max(duration/3, 5*time.Millisecond)))
	defer done()
	err := l.refresh(b)
	if err == nil {
		g.counts.renewed.Add(1)
	}
	if err == nil || errors.Is(err, ErrClosed) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isOver { // otherwise it was released, or its loss is reported
		g.log.warn("luagate: a renewal failed", "semaphore", l.semaphore.key(), "id", l.id, "error", err)
		l.planRenewal(min(max(duration/10, 5*time.Millisecond), time.Second))
	}
}

func (l *lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expiresAt != -1 && until(l.end) <= 0 {
		l.reportLoss()
	} else {
		l.planExpiry()
	}
}

func (l *lease) reportLoss() {
	if !l.isOver {
		l.announce()
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
