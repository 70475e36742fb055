package luagate

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"
)

// Permit is held until it is released or its lease ends.
type Permit struct {
	ID      string // of the holder
	Permits int    // their number
	Fence   int64  // higher than the fence of every earlier grant; pass it to what the permit protects
	Ticket  int64  // with which it waited in line; 0: it did not wait

	semaphore *Semaphore
	lease     *lease
}

func newPermit(s *Semaphore, id string, permits int, fence, ticket, expiresAt int64, end time.Time) *Permit {
	kept := newLease(s, id, expiresAt, end)
	permit := &Permit{ID: id, Permits: permits, Fence: fence, Ticket: ticket, semaphore: s, lease: kept}
	runtime.AddCleanup(permit, func(l *lease) { l.renew(false) }, kept)
	kept.renew(s.isRenewed())
	return permit
}

// ExpiresAt returns the end of the lease by the clock of the server, in ms since 1970.
func (p *Permit) ExpiresAt() int64 { return p.lease.serverEnd() }

// Remaining returns the time until the lease ends, by this machine's clock: never longer than on the server.
func (p *Permit) Remaining() time.Duration { return p.lease.remaining() }

// IsLost reports whether another client may hold it by now. It sends no call.
func (p *Permit) IsLost() bool { return p.Remaining() == 0 }

// Lost returns a channel that is closed when the permit is lost, not when it is released.
func (p *Permit) Lost() <-chan struct{} { return p.lease.watch() }

// Refresh starts the lease anew, or returns ErrLost.
func (p *Permit) Refresh(ctx context.Context) error {
	return p.lease.refresh(ctx)
}

// Release releases the permit, even if ctx is done. It reports whether the permit was still held. A second call does no harm.
func (p *Permit) Release(ctx context.Context) (bool, error) {
	p.lease.finish()
	word, _, err := p.semaphore.client.call(ctx, p.semaphore, "release", map[string]any{"id": p.ID, "keep": 0})
	return word == "released", err
}

// Permits are permits of several semaphores in the order of the wants. They are held until they are released, or until the first
// of their leases ends.
type Permits []*Permit

// Fences returns the fence of each semaphore.
func (p Permits) Fences() []int64 {
	var fences []int64
	for _, permit := range p {
		fences = append(fences, permit.Fence)
	}
	return fences
}

// Remaining returns the time until the first of the leases ends.
func (p Permits) Remaining() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, permit := range p {
		least = min(least, permit.Remaining())
	}
	return least
}

// IsLost reports whether another client may hold one of them by now. It sends no call.
func (p Permits) IsLost() bool { return p.Remaining() == 0 }

// Lost returns a channel that is closed when one of the permits is lost, not when they are released.
func (p Permits) Lost() <-chan struct{} {
	lost := make(chan struct{})
	lose := sync.OnceFunc(func() { close(lost) })
	for _, permit := range p {
		permit.Lost() // watches the lease
		context.AfterFunc(permit.lease.lost, lose)
	}
	return lost
}

// Refresh starts all leases anew, or returns ErrLost if one of the permits is lost.
func (p Permits) Refresh(ctx context.Context) error {
	for _, permit := range p {
		if err := permit.Refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all permits, even if ctx is done. It reports whether all were still held. A second call does no harm.
func (p Permits) Release(ctx context.Context) (bool, error) {
	wereHeld, failed := true, error(nil)
	for _, permit := range p {
		held, err := permit.Release(ctx)
		wereHeld, failed = wereHeld && held, errors.Join(failed, err)
	}
	return wereHeld, failed
}
