package luagate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// mostSemaphores is the largest number of semaphores that Several takes.
const mostSemaphores = 64

// Want is a number of permits of one semaphore.
type Want struct {
	Semaphore *Semaphore
	Permits   int
}

// Several grants permits of several semaphores, all or none.
type Several struct {
	client *Client
	wants  []Want
}

// Several combines these wants. TryAcquire and Acquire return an error unless these are 1 to 64 semaphores of this client, each
// once.
func (c *Client) Several(wants ...Want) *Several { return &Several{c, wants} }

// Permits are granted together, and listed in the order of the wants. They are held until they are released, or until the first
// of their leases ends.
type Permits []*Permit

// TryAcquire returns permits of all at once, or ErrDenied. The names must share a group, as in {x}:a and {x}:b.
func (s *Several) TryAcquire(ctx context.Context) (Permits, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var tags []string
	for _, want := range s.wants {
		_, tag, _ := strings.Cut(want.Semaphore.keys[0], "{")
		tag, _, _ = strings.Cut(tag, "}")
		tags = append(tags, tag)
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
	var permits Permits
	id := newID()
	args := []any{id}
	for _, want := range s.wants {
		of := want.Semaphore
		keys = append(keys, of.keys...)
		args = append(args, want.Permits, of.limit, of.lease, of.AtLeast.Milliseconds())
		permits = append(permits, &Permit{ID: id, Permits: want.Permits, semaphore: of})
	}
	asked := time.Now()
	word, fields, err := s.client.scripts["semaphore/try_acquire_all"].ask(ctx, s.client.rdb, keys, args)
	switch {
	case err != nil:
		for _, p := range permits {
			p.abandon(time.Now().Add(patience))
		}
		return nil, err
	case word == "denied":
		return nil, ErrDenied
	case word == "above_limit":
		return nil, ErrAboveLimit
	}
	for i, row := range fields["permits"].([]any) {
		granted := row.([]any) // permits fence expires_at in_use limit
		permits[i].Fence = granted[1].(int64)
		permits[i].lease.Store(newLease(asked, granted[2].(int64), fields["now"].(int64)))
	}
	return permits, nil
}

// Acquire returns permits of all. It waits in line until ctx is done, for one semaphore after the other: by limit, the
// smallest first, then by key. It refreshes permits that are already held meanwhile, and returns ErrLost if one of them is
// lost. After an error nothing stays held.
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
		err = ErrLost
	}
	if err != nil {
		permits.Release(ctx)
		return nil, err
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
		if err != nil && ctx.Err() == nil && waiting.Err() != nil {
			err = context.Cause(waiting) // the refresh error of a held permit
		}
		if err != nil {
			return err
		}
		held[want.Semaphore], last = p, p
		go p.keep(waiting, stop)
	}
	stop(nil)
	for _, p := range held {
		if p == last {
			continue
		}
		if err := p.Refresh(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// keep refreshes the permit at a third of its lease until ctx is done. If a refresh fails, it stops the wait for the others.
func (p *Permit) keep(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.Remaining() - millis(p.semaphore.lease)*2/3):
			if err := p.Refresh(ctx); err != nil {
				stop(err)
				return
			}
		}
	}
}

func (s *Several) check() error {
	if n := len(s.wants); n < 1 || n > mostSemaphores {
		return fmt.Errorf("luagate: Several: got %d semaphores. Accepted: 1 to %d", n, mostSemaphores)
	}
	seen := map[string]bool{}
	for _, want := range s.wants {
		name := want.Semaphore.keys[0]
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
		return cmp.Or(cmp.Compare(a.Semaphore.limit, b.Semaphore.limit), cmp.Compare(a.Semaphore.keys[0], b.Semaphore.keys[0]))
	})
}

// Fences returns the fence of each semaphore.
func (p Permits) Fences() []int64 {
	var fences []int64
	for _, permit := range p {
		fences = append(fences, permit.Fence)
	}
	return fences
}

// Remaining returns the time for which all permits are certainly still held.
func (p Permits) Remaining() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, permit := range p {
		least = min(least, permit.Remaining())
	}
	return least
}

// IsLost reports whether they were released, or one of the leases may have ended.
func (p Permits) IsLost() bool { return p.Remaining() == 0 }

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
