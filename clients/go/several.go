package luagate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	gate  *Gate
	wants []Want
}

// Several combines these wants. TryAcquire and Acquire return ErrInvalid unless these are 1 to 64 semaphores
// of this gate, each once.
func (g *Gate) Several(wants ...Want) *Several { return &Several{g, wants} }

// TryAcquire returns permits of all at once, or a *DeniedError. The names must share a group, as in {x}:a and
// {x}:b. It ignores HeadStart. It ends as TryAcquire of a semaphore does.
func (s *Several) TryAcquire(ctx context.Context) (*Permits, error) {
	requests, err := s.requests(ctx)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, want := range s.wants {
		tags = append(tags, want.Semaphore.tag())
	}
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(tags) > 1 {
		return nil, fmt.Errorf("luagate: TryAcquire: %w names: got the hash tags %s. Accepted: names with one hash tag, as {x}:a and "+
			"{x}:b. For other names, call Acquire", ErrInvalid, strings.Join(tags, ", "))
	}
	b, done := s.gate.begin(ctx, s.gate.callTimeout)
	defer done()
	return s.settled(b, func() ([]*Permit, error) {
		permits, err := s.try(b, requests)
		s.gate.counts.refuse(err, true)
		return permits, err
	})
}

func (s *Several) try(b bound, requests []*request) (permits []*Permit, err error) {
	var keys []string
	id := requests[0].id
	args := []any{id}
	for _, r := range requests {
		of := r.semaphore
		keys = append(keys, of.keys...)
		args = append(args, r.permits, of.limit, of.firstLease().Milliseconds(), of.AtLeast.Milliseconds())
	}
	run := &scriptCall{s.gate.scripts["semaphore/try_acquire_several"], keys, args, func(last reply) bool { return fits(last, len(requests)) }}
	var tries tries
	mayHold := false
	defer func() {
		if err != nil && (mayHold || tries.mayRun()) {
			var releases []<-chan struct{}
			for _, r := range requests {
				releases = append(releases, s.gate.releaseLost(r.semaphore, id, &tries))
			}
			for _, released := range releases {
				if mayHold { // and the server answers
					b.await(released, s.gate.callTimeout)
				}
			}
		}
	}()
	for {
		asked := clock()
		last, err := s.gate.repeat(b, "Several", &tries, run)
		if err != nil {
			return nil, err
		}
		mayHold = last.n("still_held") > 0 || last.word == "granted" || last.word == "held"
		switch last.word {
		case "denied":
			return nil, s.denied(last)
		case "above_limit":
			above := requests[last.n("index")-1]
			return nil, &AboveLimitError{above.semaphore.name, above.permits, int(last.n("limit"))}
		}
		if permits, err = grants(last, requests, asked, tries); permits != nil || err != nil {
			return permits, err
		}
		b.sleep(shortestPause) // a lease ended before the reply was read: ask again
	}
}

// grants returns the permits of a reply to a call that was sent after asked, or nil if a lease has ended
// already. of: the attempts that were not answered.
func grants(last reply, requests []*request, asked time.Duration, of tries) (permits []*Permit, err error) {
	rows := last.rows("permits")
	first := time.Duration(0) // the end of the first lease
	for i, r := range requests {
		row := numbers(rows, i) // permits fence expires_at in_use limit
		if limit := int(row[4]); r.semaphore.Strict && limit != r.semaphore.limit {
			return nil, &LimitMismatchError{r.semaphore.name, r.semaphore.limit, limit}
		}
		if end := endOf(asked, row[2], last.n("now")); i == 0 || end < first {
			first = end
		}
	}
	if until(first) <= 0 {
		return nil, nil
	}
	for i, r := range requests {
		row := numbers(rows, i)
		permit := Permit{ID: r.id, Permits: r.permits, Fence: row[1], Limit: int(row[4]), tries: of}
		permits = append(permits, newPermit(r.semaphore, permit, row[2], endOf(asked, row[2], last.n("now"))))
	}
	return permits, nil
}

// fits is whether a reply to a call for n semaphores has a row for each, and an index of one of them.
func fits(last reply, n int) bool {
	for _, field := range []string{"permits", "usages"} {
		if rows := last.rows(field); rows != nil && len(rows) != n {
			return false
		}
	}
	return last.fields.Get("index") == nil || last.n("index") >= 1 && last.n("index") <= int64(n)
}

func (s *Several) denied(last reply) error {
	i := last.n("index") - 1
	usages := last.rows("usages")
	of, row := s.wants[i].Semaphore, numbers(usages, int(i)) // in_use limit waiting
	if of.Strict && int(row[1]) != of.limit {
		return &LimitMismatchError{of.name, of.limit, int(row[1])}
	}
	return &DeniedError{usage(of.name, row[0], row[1], row[2], last.n("next_expiry"))}
}

// Acquire returns permits of all. It waits in line until ctx is done, for one semaphore after the other: by
// limit, the smallest first, then by key. Permits that are already held are renewed meanwhile. It returns
// ErrLost if one of them is lost. It ends as Acquire of a semaphore does, at most 100 ms after ctx. After an
// error nothing stays held.
func (s *Several) Acquire(ctx context.Context) (*Permits, error) {
	if _, err := s.requests(ctx); err != nil {
		return nil, err
	}
	b, done := s.gate.begin(ctx, 0)
	defer done()
	return s.settled(b, func() ([]*Permit, error) { return s.acquire(b) })
}

// acquire returns the permits in the order of the wants. After an error it returns those that were granted.
func (s *Several) acquire(b bound) ([]*Permit, error) {
	held := map[*Semaphore]*Permit{}
	err := s.inLine(b, held)
	var late *TimedOutError
	s.gate.counts.refuse(err, len(held) > 0 || errors.As(err, &late) && late.Limit > 0)
	var permits []*Permit
	for _, want := range s.wants {
		if p := held[want.Semaphore]; p != nil {
			permits = append(permits, p)
		}
	}
	if err == nil && (&Permits{Each: permits}).IsLost() {
		err = fmt.Errorf("luagate: Several: %w", ErrLost)
	}
	return permits, err
}

// inLine adds each granted permit to held.
func (s *Several) inLine(b bound, held map[*Semaphore]*Permit) error {
	ctx, stop := context.WithCancelCause(b.ctx)
	waiting := bound{ctx: ctx, over: b.over}
	defer stop(nil)
	var last *Permit
	for _, want := range s.inOrder() {
		r, err := newRequest(ctx, want.Semaphore, want.Permits, "")
		if err != nil {
			return err
		}
		p, err := r.acquire(waiting)
		if p != nil {
			held[want.Semaphore], last = p, p
			p.lease.renew(true)
			lost := fmt.Errorf("luagate: %s: %w. It was lost during the wait for another one", want.Semaphore.key(), ErrLost)
			p.lease.call(func() { stop(lost) }) // does not refer to the permit
		}
		if b.ctx.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // a held permit is lost
		}
		if err != nil {
			return err
		}
	}
	for _, p := range held {
		if p != last {
			if err := p.lease.refresh(b.within(s.gate.callTimeout)); err != nil {
				return timedOut(err, usage(p.semaphore.name, 0, 0, 0, -1), true)
			}
		}
	}
	return nil
}

// settled returns the result of acquire. After an error it releases the permits, and waits a moment for the
// replies.
func (s *Several) settled(b bound, acquire func() ([]*Permit, error)) (*Permits, error) {
	permits, err := acquire()
	for _, p := range permits {
		if err == nil {
			err = p.settle(b)
		}
	}
	if err != nil {
		var releases []<-chan struct{}
		for _, p := range permits {
			p.lease.finish()
			releases = append(releases, s.gate.release(p.semaphore, p.ID, &p.tries))
		}
		b = bound{ctx: context.Background()}.within(lastCall)
		for _, released := range releases {
			b.await(released, lastCall)
		}
		return nil, err
	}
	for _, p := range permits {
		p.lease.renew(p.semaphore.isRenewed())
	}
	return &Permits{Each: permits}, nil
}

// Do is Do of a semaphore for the permits of all.
func (s *Several) Do(ctx context.Context, work func(ctx context.Context, permits *Permits) error) error {
	permits, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return do(ctx, permits, work)
}

// DoChecked is Do, but it returns ErrLost if work returned no error and one of the permits was not held until
// its end.
func (s *Several) DoChecked(ctx context.Context, work func(ctx context.Context, permits *Permits) error) error {
	permits, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return doChecked(ctx, permits, work)
}

// requests checks the arguments of each want. They have one id.
func (s *Several) requests(ctx context.Context) ([]*request, error) {
	refuse := func(what, accepted string) ([]*request, error) {
		return nil, fmt.Errorf("luagate: Several: %w: got %s. Accepted: %s", ErrInvalid, what, accepted)
	}
	if n := len(s.wants); n < 1 || n > mostSemaphores {
		return refuse(fmt.Sprintf("%d semaphores", n), fmt.Sprintf("1 to %d", mostSemaphores))
	}
	seen := map[string]bool{}
	id := newID(s.gate.label)
	var requests []*request
	for _, want := range s.wants {
		if want.Semaphore == nil {
			return refuse("nil", "semaphores of the same Gate")
		}
		name := want.Semaphore.key()
		if want.Semaphore.gate != s.gate {
			return refuse(name+" of another Gate", "semaphores of the same Gate")
		}
		if seen[name] {
			return refuse(name+" twice", "each semaphore once. Ask for more permits of it instead")
		}
		seen[name] = true
		if len(requests) == 0 && want.Semaphore.Label != "" {
			id = newID(want.Semaphore.Label)
		}
		r, err := newRequest(ctx, want.Semaphore, want.Permits, id)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// inOrder returns the wants in the order that all clients use, so that no two callers wait for each other.
func (s *Several) inOrder() []Want {
	return slices.SortedFunc(slices.Values(s.wants), func(a, b Want) int {
		return cmp.Or(cmp.Compare(a.Semaphore.limit, b.Semaphore.limit), cmp.Compare(a.Semaphore.key(), b.Semaphore.key()))
	})
}

// Permits are permits of several semaphores. They are held until they are released, or until the first of
// their leases ends.
type Permits struct {
	Each []*Permit // in the order of the wants

	watch sync.Once
	lost  chan struct{}
}

// Fences returns the fence of each semaphore.
func (p *Permits) Fences() []int64 {
	var fences []int64
	for _, permit := range p.Each {
		fences = append(fences, permit.Fence)
	}
	return fences
}

// Remaining returns the time until the first of the leases ends. Permanent: none ends.
func (p *Permits) Remaining() time.Duration {
	least := Permanent
	for _, permit := range p.Each {
		least = min(least, permit.Remaining())
	}
	return least
}

// IsLost reports whether another client may hold one of them by now. It sends no call.
func (p *Permits) IsLost() bool { return p.Remaining() == 0 }

// Lost returns a channel that is closed when one of the permits is lost, not when they are released. Each
// call returns the same channel.
func (p *Permits) Lost() <-chan struct{} {
	p.watch.Do(func() {
		lost := make(chan struct{})
		lose := sync.OnceFunc(func() { close(lost) })
		p.whenLost(lose)
		p.lost = lost
	})
	return p.lost
}

// Refresh starts all leases anew, or returns ErrLost if one of the permits is lost. It ends with ctx, and
// within the call timeout of the gate.
func (p *Permits) Refresh(ctx context.Context) error {
	return errors.Join(p.each(func(permit *Permit) error { return permit.Refresh(ctx) })...)
}

// Release releases all permits, also if ctx is done. It reports whether all were still held. A second call
// does no harm. It ends as Release of a permit does.
func (p *Permits) Release(ctx context.Context) (bool, error) {
	gone := errors.New("gone")
	wereHeld, failed := true, error(nil)
	for _, err := range p.each(func(permit *Permit) error {
		wasHeld, err := permit.Release(ctx)
		if err == nil && !wasHeld {
			return gone
		}
		return err
	}) {
		wereHeld = wereHeld && err == nil
		if err != gone {
			failed = errors.Join(failed, err)
		}
	}
	return wereHeld, failed
}

// each calls f for all permits at the same time.
func (p *Permits) each(f func(*Permit) error) []error {
	errs := make([]error, len(p.Each))
	var calls sync.WaitGroup
	for i, permit := range p.Each {
		calls.Add(1)
		go func() {
			defer calls.Done()
			errs[i] = f(permit)
		}()
	}
	calls.Wait()
	return errs
}

// whenLost calls f for each permit that is lost.
func (p *Permits) whenLost(f func()) {
	for _, permit := range p.Each {
		permit.whenLost(f)
	}
}

func (p *Permits) post() {
	for _, permit := range p.Each {
		permit.post()
	}
}

func (p *Permits) gate() *Gate { return p.Each[0].semaphore.gate }
