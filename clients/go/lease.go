package luagate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// longestTimer is how long a loss may go unnoticed after the machine was suspended: timers stop meanwhile.
const longestTimer = time.Second

// lease is the lease of a permit: its end by the clock of this process, and its renewal in the background. It
// does not refer to the permit, so that a permit that the program no longer references is no longer renewed.
type lease struct {
	semaphore *Semaphore
	id        string
	isCounted atomic.Bool // as lost

	mu        sync.Mutex    // guards the fields below; nobody holds it during a call
	duration  time.Duration // of the next refresh
	expiresAt int64         // by the clock of the server; -1: never
	end       time.Duration // by clock
	isOver    bool          // released, or known to be lost
	isRenewed bool
	isWatched bool
	renewal   time.Duration // the next one, by clock
	timer     *time.Timer
	lost      chan struct{} // closed when the permit is lost; nil: nobody has asked for it
	isLost    bool
	whenLost  []func() // then called, each in a goroutine of its own
}

func newLease(s *Semaphore, id string, expiresAt int64, end time.Duration) *lease {
	return &lease{semaphore: s, id: id, duration: s.firstLease(), isWatched: s.OnLost != nil, expiresAt: expiresAt, end: end}
}

// endOf counts the end of a lease from an instant of clock before the server's time was now, less 1 ms,
// because the server rounds.
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
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.isLost {
			close(l.lost)
		}
	}
	l.startWatch()
	return l.lost
}

// call calls f in a goroutine of its own when the permit is lost.
func (l *lease) call(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isLost {
		go f()
		return
	}
	l.whenLost = append(l.whenLost, f)
	l.startWatch()
}

// renew starts or ends the renewal in the background.
func (l *lease) renew(isRenewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isRenewed = isRenewed
	l.isWatched = l.isWatched || isRenewed
	l.plan(clock())
}

// finish ends the lease at the holder's request. This is no loss. It reports whether the permit was held, as
// far as is known.
func (l *lease) finish() (wasHeld bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasHeld = !l.isOver
	l.close()
	return wasHeld
}

// announce reports a loss. Call it once.
func (l *lease) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose()
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
		l.plan(clock())
	}
	return nil
}

// --- mu is held, except in the functions that the timer calls. ---

// plan plans the next renewal after a third of the lease.
func (l *lease) plan(now time.Duration) {
	l.renewal = now + min(l.end-now, l.duration)/3
	l.start(now)
}

func (l *lease) startWatch() {
	if !l.isWatched {
		l.isWatched = true
		l.start(clock())
	}
}

// start starts the timer anew, if there is anything to do.
func (l *lease) start(now time.Duration) {
	if !l.isWatched || l.isOver || l.expiresAt == -1 {
		l.stopTimer()
		return
	}
	pause := min(l.end-now, longestTimer)
	if l.isRenewed {
		pause = min(pause, l.renewal-now)
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(pause, l.tick)
	} else {
		l.timer.Reset(pause)
	}
}

func (l *lease) tick() {
	l.mu.Lock()
	now := clock()
	if l.expiresAt != -1 && l.end <= now {
		l.reportLoss()
	}
	isDue := l.isRenewed && !l.isOver && l.expiresAt != -1 && l.renewal <= now
	if isDue {
		l.renewal = math.MaxInt64 // until this one has ended
	}
	l.start(now)
	l.mu.Unlock()
	if isDue {
		l.sendRefresh()
	}
}

// sendRefresh gives up after a third of the lease, so that a short lease is tried on another connection in
// time.
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
		now := clock()
		l.renewal = now + min(max(duration/10, 5*time.Millisecond), time.Second)
		l.start(now)
	}
}

func (l *lease) reportLoss() {
	if !l.isOver {
		l.lose()
	}
	l.close()
}

func (l *lease) lose() {
	l.countLoss()
	l.isLost = true
	if l.lost != nil {
		close(l.lost)
	}
	for _, f := range l.whenLost {
		go f()
	}
	if l.semaphore.OnLost != nil {
		go l.semaphore.OnLost(l.id)
	}
	l.semaphore.gate.log.warn("luagate: a permit is lost", "semaphore", l.semaphore.key(), "id", l.id)
}

func (l *lease) close() {
	l.isOver = true
	l.stopTimer()
}

func (l *lease) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
