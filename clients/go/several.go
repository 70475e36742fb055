package luagate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostSemaphores is the largest number of semaphores that Several takes.
const mostSemaphores = 64

// Want is a number of permits of one semaphore, for Several.
type Want struct {
	Semaphore *Semaphore
	Permits   int
}

// Want is this number of its permits, for Several.
func (s *Semaphore) Want(permits int) Want { return Want{s, permits} }

// Several grants permits of several semaphores, all or none.
type Several struct {
	client *Client
	wants  []Want
}

// Several combines these wants. TryAcquire and Acquire return an error unless these are 1 to 64 semaphores of this client, each
// once.
func (c *Client) Several(wants ...Want) *Several { return &Several{c, wants} }

// TryAcquire returns permits of all at once, or ErrDenied. The names must share a group, as in {x}:a and {x}:b. It ignores
// HeadStart.
func (s *Several) TryAcquire(ctx context.Context) (Permits, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var tags []string
	for _, want := range s.wants {
		tags = append(tags, want.Semaphore.tag())
	}
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(tags) > 1 {
		return nil, fmt.Errorf("luagate: TryAcquire: got the hash tags %s. Accepted: names with one hash tag, as {x}:a and "+
			"{x}:b. For other names, call Acquire", strings.Join(tags, ", "))
	}
	return s.try(ctx)
}

func (s *Several) try(ctx context.Context) (Permits, error) {
	var keys []string
	var requests []*request
	id := newID()
	args := []any{id}
	for _, want := range s.wants {
		of := want.Semaphore
		r, err := newRequest(of, want.Permits, id)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
		keys = append(keys, of.keys...)
		args = append(args, want.Permits, of.limit, of.lease().Milliseconds(), of.AtLeast.Milliseconds())
	}
	asked := time.Now()
	script := s.client.scripts["semaphore/try_acquire_several"]
	word, fields, err := script.Call(context.WithoutCancel(ctx), s.client.rdb, keys, args...)
	if stillHeld, _ := fields["still_held"].(int64); err != nil || stillHeld > 0 {
		for _, r := range requests {
			r.abandon(time.Now().Add(patienceUnheard))
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("luagate: Several: %w", err)
	case word == "denied":
		return nil, fmt.Errorf("luagate: Several: %s: %w", s.wants[fields["index"].(int64)-1].Semaphore.key(), ErrDenied)
	case word == "above_limit":
		above := s.wants[fields["index"].(int64)-1]
		return nil, aboveLimit(above.Semaphore, above.Permits, fields["limit"].(int64))
	}
	var permits Permits
	for i, row := range fields["permits"].([]any) {
		granted := row.([]any) // permits fence expires_at in_use limit
		expiresAt := granted[2].(int64)
		end := endOf(asked, expiresAt, fields["now"].(int64))
		want := s.wants[i]
		permits = append(permits, newPermit(want.Semaphore, id, want.Permits, granted[1].(int64), 0, expiresAt, end))
	}
	return permits, nil
}

// Acquire returns permits of all. It waits in line until ctx is done, for one semaphore after the other: by limit, the smallest
// first, then by key. Permits that are already held are renewed meanwhile. It returns ErrLost if one of them is lost. After an
// error nothing stays held.
func (s *Several) Acquire(ctx context.Context) (Permits, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	held := map[*Semaphore]*Permit{}
	err := s.acquire(ctx, held)
	var permits Permits
	for _, want := range s.wants {
		if p := held[want.Semaphore]; p != nil {
			permits = append(permits, p)
		}
	}
	if err == nil && permits.IsLost() {
		err = fmt.Errorf("luagate: Several: %w", ErrLost)
	}
	if err != nil {
		permits.Release(ctx)
		return nil, err
	}
	for _, p := range permits {
		p.lease.renew(p.semaphore.isRenewed())
	}
	return permits, nil
}

// acquire adds each granted permit to held.
func (s *Several) acquire(ctx context.Context, held map[*Semaphore]*Permit) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var last *Permit
	for _, want := range s.inOrder() {
		p, err := want.Semaphore.Acquire(waiting, want.Permits)
		if p != nil {
			held[want.Semaphore], last = p, p
			p.lease.renew(true)
			lost := fmt.Errorf("luagate: %s: %w during the wait", want.Semaphore.key(), ErrLost)
			context.AfterFunc(p.lease.lost, func() { stop(lost) }) // does not refer to the permit
		}
		if ctx.Err() == nil && waiting.Err() != nil {
			err = context.Cause(waiting) // a held permit is lost
		}
		if err != nil {
			return err
		}
	}
	for _, p := range held {
		if p == last {
			continue
		}
		if err := p.Refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Several) check() error {
	if n := len(s.wants); n < 1 || n > mostSemaphores {
		return fmt.Errorf("luagate: Several: got %d semaphores. Accepted: 1 to %d", n, mostSemaphores)
	}
	seen := map[string]bool{}
	for _, want := range s.wants {
		name := want.Semaphore.key()
		if want.Semaphore.client != s.client {
			return fmt.Errorf("luagate: Several: got %s of another Client. Accepted: semaphores of the same Client", name)
		}
		if seen[name] {
			return fmt.Errorf("luagate: Several: got %s twice. Accepted: each semaphore once. Ask for more permits of it instead",
				name)
		}
		seen[name] = true
	}
	return nil
}

// inOrder returns the wants in the order that all clients use, so that no two callers wait for each other.
func (s *Several) inOrder() []Want {
	return slices.SortedFunc(slices.Values(s.wants), func(a, b Want) int {
		return cmp.Or(cmp.Compare(a.Semaphore.limit, b.Semaphore.limit), cmp.Compare(a.Semaphore.key(), b.Semaphore.key()))
	})
}
