package luagate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Permit is held until it is released or its lease ends.
type Permit struct {
	ID      string // of the holder
	Permits int    // their number; a writer of an RWLock has all
	Fence   int64  // higher than all before it, unless the server's clock goes back; pass it to what the permit protects
	Ticket  Ticket // with which it waited in line; zero: it did not wait
	Limit   int    // in force when it was granted

	semaphore *Semaphore
	lease     *lease
	tries     tries // the attempts to acquire it that were not answered
}

func newPermit(s *Semaphore, granted Permit, expiresAt int64, end time.Duration) *Permit {
	s.gate.counts.grant(granted.Ticket != Ticket{})
	permit := &granted
	permit.semaphore, permit.lease = s, newLease(s, permit.ID, expiresAt, end)
	runtime.AddCleanup(permit, func(l *lease) { l.renew(false) }, permit.lease)
	permit.lease.renew(s.isRenewed())
	return permit
}

// settled returns the result of an acquire. It makes the lease permanent, if this is requested.
func settled(b bound, permit *Permit, err error) (*Permit, error) {
	if err == nil {
		err = permit.settle(b)
	}
	if err != nil {
		return nil, err
	}
	return permit, nil
}

func (p *Permit) settle(b bound) error {
	g := p.semaphore.gate
	if p.semaphore.Lease != Permanent {
		return nil
	}
	err := p.lease.makePermanent(b.within(g.callTimeout))
	if err != nil {
		p.lease.finish()
		g.release(p.semaphore, p.ID, &p.tries)
	}
	return err
}

// ExpiresAt returns the end of the lease by the clock of the server, in ms since 1970; -1: it is permanent.
func (p *Permit) ExpiresAt() int64 { return p.lease.serverEnd() }

// Remaining returns the time until the lease ends, by this machine's clock: never longer than on the server. Permanent: it has no
// end.
func (p *Permit) Remaining() time.Duration { return p.lease.remaining() }

// IsLost reports whether another client may hold it by now. It sends no call. It is true after a release, too.
func (p *Permit) IsLost() bool { return p.Remaining() == 0 }

// Lost returns a channel that is closed when the permit is lost, not when it is released. Each call returns the same channel.
func (p *Permit) Lost() <-chan struct{} { return p.lease.watch() }

// Refresh starts the lease anew, or returns ErrLost. It ends with ctx, and within the call timeout of the gate.
func (p *Permit) Refresh(ctx context.Context) error {
	if ctx == nil {
		return invalid("context", nil, "a context, as context.Background()")
	}
	b, done := p.semaphore.gate.begin(ctx, p.semaphore.gate.callTimeout)
	defer done()
	return p.lease.refresh(b)
}

// Release releases the permit, also if ctx is done. It reports whether the permit was still held. A second call does no harm. It
// returns at most 50 ms after ctx is done, and within the call timeout of the gate. After an error the release is repeated in the
// background.
func (p *Permit) Release(ctx context.Context) (bool, error) {
	wasHeld := p.lease.finish()
	word, isOnly, err := p.give(ctx, 0)
	if err == nil && p.tries.mayRun() {
		p.semaphore.gate.releaseAgain(p)
	}
	if err != nil || word == "released" || !wasHeld {
		return word == "released", err
	}
	if isOnly {
		p.lease.announce()
	}
	return !isOnly, nil // a copy whose reply was lost has released it
}

// Downgrade makes a writer of an RWLock a reader, without a moment in which another writer can come. It returns ErrLost if the
// permit is lost, and ErrInvalid for a permit of another kind. It ends as Release does.
func (p *Permit) Downgrade(ctx context.Context) error {
	if !p.semaphore.isWriter || p.Permits == 1 {
		return invalid("permit", p.ID, "a permit of Write of an RWLock, which is not a reader yet")
	}
	word, _, err := p.give(ctx, 1)
	if err == nil && word == "gone" {
		err = fmt.Errorf("luagate: %s: %w", p.semaphore.key(), ErrLost)
	}
	if err == nil {
		p.Permits = 1
	}
	return err
}

// give releases all permits but keep. isOnly: the call was sent once.
func (p *Permit) give(ctx context.Context, keep int) (word string, isOnly bool, err error) {
	if ctx == nil {
		return "", false, invalid("context", nil, "a context, as context.Background()")
	}
	g, s := p.semaphore.gate, p.semaphore
	ctx, end := late(ctx)
	defer end()
	b, done := g.begin(ctx, g.callTimeout)
	defer done()
	var of tries
	answer, err := g.call(b, s, "release", map[string]any{"id": p.ID, "keep": keep}, &of)
	if err != nil && keep == 0 && !errors.Is(err, ErrClosed) {
		g.release(s, p.ID, p.tries.and(of))
	}
	return answer.word, !of.mayRun(), err
}

// grant is one permit, or permits of several semaphores.
type grant interface {
	IsLost() bool
	Lost() <-chan struct{}
	Release(ctx context.Context) (bool, error)
	post()
	gate() *Gate
}

func (p *Permit) post() { p.semaphore.gate.post(p) }

func (p *Permit) gate() *Gate { return p.semaphore.gate }

// do runs work and posts the release, also if work panics.
func do[G grant](ctx context.Context, permit G, work func(context.Context, G) error) error {
	working, stop := context.WithCancelCause(ctx)
	defer permit.post()
	defer stop(nil)
	watch(working, permit, stop)
	return work(working, permit)
}

// doChecked runs work and waits for the release. It returns ErrLost if the permit was not held until the end.
func doChecked[G grant](ctx context.Context, permit G, work func(context.Context, G) error) (err error) {
	working, stop := context.WithCancelCause(ctx)
	defer func() {
		stop(nil)
		isHeld := !permit.IsLost()
		wasHeld, failed := permit.Release(ctx)
		if failed != nil {
			permit.gate().logger.Warn("luagate: a release failed; it is repeated in the background", "error", failed)
		}
		if err == nil && !(isHeld && (wasHeld || failed != nil)) {
			err = fmt.Errorf("luagate: %w", ErrLost)
		}
	}()
	watch(working, permit, stop)
	return work(working, permit)
}

// watch ends the context of the work when the permit is lost.
func watch(working context.Context, permit grant, stop context.CancelCauseFunc) {
	go func() {
		select {
		case <-permit.Lost():
			stop(ErrLost)
		case <-working.Done():
		}
	}()
}
