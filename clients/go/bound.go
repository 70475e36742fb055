package luagate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// bound is what ends a call: a context, a longest time, and the end of the gate. A context made of all of
// them would cost three timers and locks for each call.
type bound struct {
	ctx   context.Context
	until time.Time       // zero: no longest time
	over  <-chan struct{} // closed when the gate is
}

// begin returns the bound of one call of a user. 0: no longest time. Close waits until done is called.
func (g *Gate) begin(ctx context.Context, longest time.Duration) (b bound, done func()) {
	b = bound{ctx: ctx, over: g.closing.Done()}
	if longest > 0 {
		b = b.within(longest)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return b, func() {}
	}
	g.running.Add(1)
	return b, g.running.Done
}

// within returns an earlier bound.
func (b bound) within(longest time.Duration) bound {
	if until := time.Now().Add(longest); b.until.IsZero() || until.Before(b.until) {
		b.until = until
	}
	return b
}

// cause returns why the call must end, or nil.
func (b bound) cause() error {
	select {
	case <-b.over:
		return ErrClosed
	default:
	}
	switch err := context.Cause(b.ctx); {
	case err != nil:
		return err
	case !b.until.IsZero() && !time.Now().Before(b.until):
		return errNoReply
	}
	return nil
}

// ended returns the error of a call that must end. last is the last error of go-redis, if any.
func (b bound) ended(place string, last error) error {
	cause := b.cause()
	switch {
	case cause == errNoReply:
		return unreachable(place, last)
	case cause == ErrClosed:
		return fmt.Errorf("luagate: %s: %w", place, ErrClosed)
	case !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled):
		cause = fmt.Errorf("%w: %w", b.ctx.Err(), cause) // the program gave a cause of its own
	}
	if last != nil {
		return fmt.Errorf("luagate: %s: %w. The server did not answer: %w", place, cause, last)
	}
	return fmt.Errorf("luagate: %s: %w", place, cause)
}

// left returns the time until b ends, but not more than this.
func (b bound) left(longest time.Duration) time.Duration {
	if !b.until.IsZero() {
		longest = min(longest, time.Until(b.until))
	}
	return longest
}

// sleep returns early if the call must end.
func (b bound) sleep(pause time.Duration) { b.await(nil, pause) }

// await waits until done is closed, but not longer than this time. It returns early if the call must end.
func (b bound) await(done <-chan struct{}, longest time.Duration) {
	timer := time.NewTimer(b.left(longest))
	defer timer.Stop()
	select {
	case <-done:
	case <-b.ctx.Done():
	case <-b.over:
	case <-timer.C:
	}
}

// late returns a context that ends a little later than ctx.
func late(ctx context.Context) (context.Context, func()) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastCall, func() { cancel(context.Cause(ctx)) }) })
	return lasting, func() {
		stop()
		cancel(nil)
	}
}
