package luagate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

const (
	patience        = 15 * time.Second // after a call, the server keeps a waiter's place for this time
	patienceUnheard = 3 * time.Second  // the same if messages do not reach the client: it asks after a third of it
	recheck         = 5 * time.Second  // a waiter asks again after this time at the latest
	outage          = 10 * time.Second // a waiter continues to wait for this time while the server does not answer
)

// request is the calls of one id for its permits, until they are granted or the caller gives up.
type request struct {
	semaphore *Semaphore
	id        string
	permits   int
	ticket    int64
	inbox     *inbox
	secret    string // the server signs the messages for this request with it
	messages  chan message
	tries     tries
	asked     time.Duration // an instant of clock before the last call was sent
	last      reply         // to this call
}

// newRequest checks all arguments. "": a new id.
func newRequest(ctx context.Context, s *Semaphore, permits int, id string) (*request, error) {
	if ctx == nil {
		return nil, invalid("context", nil, "a context, as context.Background()")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := checkCount("permits", permits, 1); err != nil {
		return nil, err
	}
	if s.isWriter {
		if permits != 1 {
			return nil, invalid("permits", permits, "1 for a writer")
		}
		permits = s.limit
	}
	if id == "" {
		id = newID(cmp.Or(s.Label, s.gate.label))
	}
	return &request{semaphore: s, id: id, permits: permits}, nil
}

// ask calls the script acquire: with a wait above 0 it joins the line. It returns nil if no permits are
// granted, or if their lease has ended already.
func (r *request) ask(b bound, wait time.Duration, channel string) (*Permit, error) {
	s := r.semaphore
	args := append(make([]any, 0, 10), r.id, r.permits, s.limit, s.firstLease().Milliseconds(), wait.Milliseconds(), channel, r.ticket)
	headStart := s.HeadStart.Milliseconds()
	if s.MaxWaiting != 0 || s.AtLeast != 0 || headStart != 0 {
		args = append(args, s.MaxWaiting, s.AtLeast.Milliseconds())
	}
	if headStart != 0 {
		args = append(args, headStart)
	}
	r.asked = clock()
	last, err := s.gate.call(b, s, &r.tries, "acquire", args...)
	if err != nil {
		r.giveUp()
		return nil, err
	}
	r.last = last
	limit := int(last.n("limit"))
	if s.Strict && limit != s.limit {
		if released := r.giveUp(); released != nil {
			b.await(released, s.gate.callTimeout)
		}
		return nil, &LimitMismatchError{s.name, s.limit, limit}
	}
	switch last.word {
	case "granted", "held":
		return r.granted(last.n("fence"), last.n("expires_at"), endOf(r.asked, last.n("expires_at"), last.n("now"))), nil
	case "queued":
		r.ticket = last.n("ticket")
	case "above_limit":
		r.giveUp()
		return nil, &AboveLimitError{s.name, r.permits, limit}
	case "denied":
		r.giveUp()
		if wait > 0 {
			return nil, &LineFullError{r.usage(), s.MaxWaiting}
		}
		return nil, &DeniedError{r.usage()}
	}
	return nil, nil
}

// try asks without waiting: this takes a grant whose message has not arrived yet, or leaves the line.
func (r *request) try(b bound) (*Permit, error) {
	for {
		if permit, err := r.ask(b, 0, ""); permit != nil || err != nil {
			return permit, err
		}
		b.sleep(shortestPause) // its lease ended before the reply was read
	}
}

func (r *request) acquire(b bound) (*Permit, error) {
	if b.ctx.Err() != nil {
		return nil, timedOut(b.ended(r.semaphore.key(), nil), r.usage(), false)
	}
	permit, err := r.wait(b)
	return permit, timedOut(err, r.usage(), true)
}

func (r *request) wait(b bound) (*Permit, error) {
	g := r.semaphore.gate
	r.secret, r.messages = rand.Text(), make(chan message, 8)
	g.waiting.Store(r.id, r)
	defer g.waiting.Delete(r.id)
	for {
		if b.cause() == ErrClosed { // Close waits only for what began before
			return r.end(b)
		}
		permit, err := r.join(b)
		if permit == nil && err == nil {
			permit, err = r.sleep(b)
		}
		if permit != nil || err != nil {
			return permit, err
		}
		if b.cause() != nil {
			return r.end(b)
		}
	}
}

// join asks for a place in line, or for the permits of this place.
func (r *request) join(b bound) (*Permit, error) {
	b = b.within(outage)
	channel, wait := "", patienceUnheard
	r.inbox = nil
	if server, err := r.semaphore.gate.serverOf(b.within(opening), r.semaphore.key()); err == nil {
		r.inbox = server.inbox
		opened, err := r.inbox.open(b)
		if err != nil {
			r.giveUp()
			return nil, err
		}
		if opened != "" {
			channel, wait = opened+"#"+r.secret, patience
		}
	}
	return r.ask(b, wait, channel)
}

// end gives up: b has ended.
func (r *request) end(b bound) (*Permit, error) {
	why := b.ended(r.semaphore.key(), nil)
	if b.cause() == ErrClosed {
		r.giveUp()
		return nil, why
	}
	b.ctx = context.WithoutCancel(b.ctx)
	permit, err := r.try(b.within(lastCall))
	if permit != nil {
		return permit, nil
	}
	if _, isDenied := err.(*DeniedError); isDenied && !errors.Is(why, context.DeadlineExceeded) { // else it is a TimedOutError
		why = fmt.Errorf("%w. Requested permits: %d. %v", why, r.permits, r.usage())
	}
	return nil, why
}

// sleep returns when it is time to ask again or b ends. It returns a permit if a message grants it before
// that.
func (r *request) sleep(b bound) (*Permit, error) {
	pause := min(recheck, millis(r.last.n("retry_after")))
	if r.last.word != "queued" { // granted, but the lease ended before the reply was read
		pause = clock() - r.asked + shortestPause
	}
	wake := r.asked + pause
	for {
		select {
		case <-b.ctx.Done():
			return nil, nil
		case <-b.over:
			return nil, nil
		case <-time.After(until(wake)):
			if r.inbox != nil {
				r.inbox.verify()
			}
			return nil, nil
		case m := <-r.messages:
			switch {
			case m.now < r.last.n("now"): // older than the last reply
			case m.fence == 0 && m.at == -1:
				r.giveUp() // a call sent before the message arrived may have joined the line again
				return nil, fmt.Errorf("luagate: %s: %w", r.semaphore.key(), ErrRevoked)
			case m.fence == 0:
				wake = min(wake, m.received+millis(m.at-m.now))
			case r.isNew(m.fence) && m.permits == r.permits:
				if r.semaphore.Strict {
					return nil, nil // the message does not tell the limit in force: ask
				}
				// The message may have been delayed: its arrival alone would give an end that is too late.
				end := min(endOf(r.asked, m.at, r.last.n("now")), endOf(m.received, m.at, m.now))
				return r.granted(m.fence, m.at, end), nil
			}
		}
	}
}

// isNew is whether the server gave this fence after the place in line: the ticket is the next fence of that
// time, lower by the head start (both in µs).
func (r *request) isNew(fence int64) bool {
	return fence > r.ticket+1000*r.semaphore.HeadStart.Milliseconds()
}

// granted returns the permit, or nil if its lease has ended already.
func (r *request) granted(fence, expiresAt int64, end time.Duration) *Permit {
	if until(end) <= 0 {
		return nil
	}
	return newPermit(r.semaphore, Permit{ID: r.id, Permits: r.permits, Fence: fence, Ticket: Ticket{r.ticket}, Limit: int(r.last.n("limit")),
		tries: r.tries}, expiresAt, end)
}

// giveUp releases in the background what the id may hold: also after a denial, if an earlier call may come
// later. The returned channel is closed at its end; nil: it holds nothing.
func (r *request) giveUp() <-chan struct{} {
	if r.tries.mayRun() || r.last.word == "queued" || r.last.word == "granted" || r.last.word == "held" {
		return r.semaphore.gate.releaseLost(r.semaphore, r.id, &r.tries)
	}
	return nil
}

// deliver drops the message if the channel is full: the waiter's next call returns the same outcome.
func (r *request) deliver(m message) {
	select {
	case r.messages <- m:
	default:
	}
}

// usage returns the numbers of the last reply; of all replies, only denied has the next expiry.
func (r *request) usage() Usage {
	waiting, next := r.last.n("position"), int64(-1)
	if r.last.word == "denied" {
		waiting, next = r.last.n("waiting"), r.last.n("next_expiry")
	}
	return usage(r.semaphore.name, r.last.n("in_use"), r.last.n("limit"), waiting, next)
}

func usage(name string, inUse, limit, waiting, nextExpiry int64) Usage {
	return Usage{name, int(inUse), int(limit), int(waiting), millis(nextExpiry)}
}
