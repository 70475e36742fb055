package luagate

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

const (
	patience        = 15 * time.Second // after a call, the server keeps a waiter's place for this time
	patienceUnheard = 60 * time.Second // the same if messages do not reach the client
	recheck         = 5 * time.Second  // a waiter asks again after this time at the latest
)

// request is the calls of one id for its permits, until they are granted or the caller gives up.
type request struct {
	semaphore     *Semaphore
	id            string
	permits       int
	ticket        int64
	inbox, secret string // the server signs the messages for this request with the secret
	messages      chan message
	asked         time.Time // an instant before the last call was sent
	last          reply     // to this call
}

func newRequest(s *Semaphore, permits int, id string) (*request, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.HeadStart < 0 || s.HeadStart > longestHeadStart {
		return nil, invalid("HeadStart", s.HeadStart.String(), "0 to 24 hours")
	}
	if permits < 1 {
		return nil, invalid("permits", permits, "an integer from 1 on")
	}
	return &request{semaphore: s, id: id, permits: permits}, nil
}

// ask calls the script acquire once: with a wait above 0 it joins the line. It returns nil if no permits are granted.
func (r *request) ask(ctx context.Context, wait time.Duration) (*Permit, error) {
	s := r.semaphore
	arguments := map[string]any{
		"id": r.id, "permits": r.permits, "limit": s.limit, "lease_ms": s.lease().Milliseconds(),
		"wait_ms": wait.Milliseconds(), "inbox": r.inbox, "ticket": r.ticket,
	}
	headStart := s.HeadStart.Milliseconds()
	if s.MaxWaiting != 0 || s.AtLeast != 0 || headStart != 0 {
		arguments["max_waiting"], arguments["at_least_ms"] = s.MaxWaiting, s.AtLeast.Milliseconds()
	}
	if headStart != 0 {
		arguments["head_start_ms"] = headStart
	}
	r.asked = time.Now()
	word, last, err := s.client.call(ctx, s, "acquire", arguments)
	if err != nil {
		r.abandon(time.Now().Add(patienceUnheard))
		return nil, err
	}
	r.last = last
	switch word {
	case "granted", "held":
		return r.granted(last["fence"], last["expires_at"], endOf(r.asked, last["expires_at"], last["now"])), nil
	case "queued":
		r.ticket = last["ticket"]
	case "above_limit":
		return nil, aboveLimit(s, r.permits, last["limit"])
	case "denied":
		if wait > 0 {
			return nil, LineFullError{s.key(), int(last["waiting"]), s.MaxWaiting}
		}
	}
	return nil, nil
}

// try asks without waiting: this takes a grant whose message has not arrived yet, or leaves the line.
func (r *request) try(ctx context.Context, denied error) (*Permit, error) {
	permit, err := r.ask(ctx, 0)
	if permit == nil && err == nil {
		err = denied
	}
	return permit, err
}

func (r *request) acquire(ctx context.Context) (*Permit, error) {
	s := r.semaphore
	inbox, err := s.client.listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("luagate: %s: the subscription to grant messages: %w", s.key(), err)
	}
	r.secret, r.messages = rand.Text(), make(chan message, 8)
	wait := patienceUnheard
	if inbox != "" {
		r.inbox, wait = inbox+"#"+r.secret, patience
	}
	s.client.waiting.Store(r.id, r)
	defer s.client.waiting.Delete(r.id)
	for ctx.Err() == nil {
		if permit, err := r.ask(ctx, wait); permit != nil || err != nil {
			return permit, err
		}
		permit, err := r.sleep(ctx)
		if err != nil {
			r.abandon(time.Now().Add(wait)) // a call sent before the message arrived may have joined the line again
		}
		if permit != nil || err != nil {
			return permit, err
		}
	}
	over := fmt.Errorf("luagate: %s: %d of %d permits were not granted before the context ended: %w", s.key(), r.permits, s.limit,
		ctx.Err())
	return r.try(ctx, over)
}

// sleep returns when it is time to ask again or ctx is done. It returns a permit if a message grants it before that.
func (r *request) sleep(ctx context.Context) (*Permit, error) {
	pause := min(recheck, millis(r.last["retry_after"]))
	wake := r.asked.Add(pause)
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(time.Until(wake)):
			return nil, nil
		case m := <-r.messages:
			switch {
			case m.now < r.last["now"]: // older than the last reply
			case m.fence == 0 && m.at == -1:
				return nil, fmt.Errorf("luagate: %s: %w", r.semaphore.key(), ErrRevoked)
			case m.fence == 0:
				if at := m.received.Add(millis(m.at - m.now)); at.Before(wake) {
					wake = at
				}
			case r.isNew(m.fence) && m.permits == r.permits:
				// The message may have been delayed: its arrival alone would give an end that is too late.
				end := endOf(r.asked, m.at, r.last["now"])
				if received := endOf(m.received, m.at, m.now); received.Before(end) {
					end = received
				}
				return r.granted(m.fence, m.at, end), nil
			}
		}
	}
}

// isNew is whether the server gave this fence after the place in line: the ticket is the next fence of that time, lower by the head
// start (both in µs).
func (r *request) isNew(fence int64) bool {
	return fence > r.ticket+1000*r.semaphore.HeadStart.Milliseconds()
}

// granted returns the permit, or nil if its lease has ended already.
func (r *request) granted(fence, expiresAt int64, end time.Time) *Permit {
	permit := newPermit(r.semaphore, r.id, r.permits, fence, r.ticket, expiresAt, end)
	if permit.IsLost() {
		return nil
	}
	return permit
}

// abandon releases the permits of the id, or its place in line. If that fails, it retries each second until the given time.
func (r *request) abandon(until time.Time) {
	_, _, err := r.semaphore.client.call(context.Background(), r.semaphore, "release", map[string]any{"id": r.id, "keep": 0})
	if err != nil && time.Now().Before(until) {
		time.AfterFunc(time.Second, func() { r.abandon(until) })
	}
}

// deliver drops the message if the channel is full: the waiter's next call returns the same outcome.
func (r *request) deliver(m message) {
	select {
	case r.messages <- m:
	default:
	}
}

func aboveLimit(s *Semaphore, permits int, limit int64) error {
	return fmt.Errorf("luagate: %s: %w: %d permits are more than the limit in force. Accepted: 1 to %d. Ask for fewer", s.key(),
		ErrInvalid, permits, limit)
}
