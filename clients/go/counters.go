package luagate

import (
	"errors"
	"sync/atomic"
)

// Counters are numbers of events since New. None ever decreases. They are read one after the other: a grant
// that is made at the same time may show in one and not yet in the next.
type Counters struct {
	// Permits that were handed out, at once or after a wait. Each counts once, also if it is several permits
	// of a semaphore. Each of the permits of Several counts, even if it is given back because another
	// semaphore is not free in time.
	Granted uint64
	// Callers that were refused because of other callers: by a *DeniedError, a *LineFullError, or a
	// *TimedOutError after an answer of the server. Failures of the server and cancelled waits do not count.
	Denied uint64
	// The part of Denied that did not join the line because it was full.
	LineFull uint64
	// The part of Granted that waited in line first.
	Waited uint64
	// Permits that turned out to be lost while this process held them. Each counts once, when the loss is
	// noticed: by a refused refresh or renewal, by a release that found nothing, or at the end of the lease.
	// The end of a fixed lease is noticed by IsLost and Remaining, and at once with Lost, OnLost, Do or
	// DoChecked. A permit whose release had to be repeated does not count, since the first release may have
	// been carried out.
	Lost uint64
	// Renewals in the background that the server confirmed. Calls of Refresh do not count.
	Renewed uint64
	// Connections of the gate that replaced an earlier one, because it broke, did not answer in time or led
	// to a former master, and subscriptions that were re-established.
	Reconnects uint64
}

// Counters returns the numbers of events since New, for monitoring. It sends nothing, and works after Close.
func (g *Gate) Counters() Counters {
	c := &g.counts
	var now Counters // a part is read before its whole, so that it is not greater
	now.Waited, now.LineFull = c.waited.Load(), c.lineFull.Load()
	now.Granted, now.Denied = c.granted.Load(), c.denied.Load()
	now.Lost, now.Renewed, now.Reconnects = c.lost.Load(), c.renewed.Load(), c.reconnects.Load()
	return now
}

// counts are the counters, as they are updated: a whole before its part.
type counts struct {
	waited, lineFull, granted, denied, lost, renewed, reconnects atomic.Uint64
}

func (c *counts) grant(waited bool) {
	c.granted.Add(1)
	if waited {
		c.waited.Add(1)
	}
}

// refuse counts an error of an acquire, if other callers are its cause. isAnswered: the server has answered
// the call.
func (c *counts) refuse(err error, isAnswered bool) {
	if err == nil {
		return
	}
	var late *TimedOutError
	switch {
	case errors.Is(err, ErrDenied), errors.As(err, &late) && isAnswered:
		c.denied.Add(1)
	case errors.Is(err, ErrLineFull):
		c.denied.Add(1)
		c.lineFull.Add(1)
	}
}
