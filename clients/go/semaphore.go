package luagate

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"
)

const (
	// DefaultLease is the lease of a permit if Semaphore.Lease is 0. It is renewed in the background.
	DefaultLease = 30 * time.Second
	// Permanent is a Lease that never ends: the permit is held until it is released or revoked.
	Permanent time.Duration = math.MaxInt64
)

// Semaphore grants permits. At most its limit are held at a time. Set its fields before the first call.
// Nothing is re-entrant. Invalid fields let each call return ErrInvalid.
type Semaphore struct {
	// The lease of each permit: 1 ms to 100 years. Without AutoRenew a permit ends after this time unless
	// Refresh is called. 0: DefaultLease, renewed in the background until the permit is released. Permanent:
	// no end.
	Lease time.Duration
	// Renews the lease in the background until the permit is released.
	AutoRenew bool
	// If this number of callers or more wait in line, Acquire returns a *LineFullError. 0: no bound.
	MaxWaiting int
	// A permit that is released earlier than this after its grant stays in use until then. The lease is not
	// shorter. 0: no minimum.
	AtLeast time.Duration
	// A call joins the line as if it had come that much earlier, up to a day. Only calls that come within the
	// head start after a waiter can overtake it. 0: none.
	HeadStart time.Duration
	// A text before the id of each permit, which shows its owner: up to 163 bytes without white space. "":
	// the label of the gate.
	Label string
	// Refuses to acquire while another limit than the declared one is in force: *LimitMismatchError.
	Strict bool
	// Is called in a goroutine of its own when a permit is lost, with its id: also if its release finds that
	// it was lost.
	OnLost func(id string)

	gate     *Gate
	name     string
	keys     []string // meta, holders, queue
	limit    int
	isWriter bool  // a permit of the caller is all permits of the lock
	err      error // why the name or the limit is not valid
}

// RWLock is a lock for readers and writers: many readers, or one writer. Both have the calls and the fields
// of a mutex, and can be used in Several. Acquire one permit of Read to read, or of Write to write.
type RWLock struct {
	Read, Write *Semaphore
}

func newSemaphore(gate *Gate, kind, name string, limit int) *Semaphore {
	tag := "{" + name + "}"
	if groupedName.MatchString(name) {
		tag = name
	}
	key := func(part string) string { return gate.prefix + ":" + kind + part + ":" + tag }
	keys := []string{key(""), key(".holders"), key(".queue")}
	return &Semaphore{gate: gate, name: name, keys: keys, limit: limit, err: checkName(name, limit)}
}

// TryAcquire returns permits at once, or a *DeniedError. It does not wait in line. It ends with ctx, and
// within the call timeout of the gate: it is repeated if the server does not answer. After an error nothing
// stays held.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (*Permit, error) {
	r, err := newRequest(ctx, s, permits, "")
	if err != nil {
		return nil, err
	}
	b, done := s.gate.begin(ctx, s.gate.callTimeout)
	defer done()
	permit, err := r.try(b)
	s.gate.counts.refuse(err, true)
	return settled(b, permit, err)
}

// Acquire waits in line for permits until ctx is done: first come, first served. Then it asks a last time
// without waiting, and returns at most 50 ms later. It returns the context's error if the permits are not
// granted (after a deadline a *TimedOutError), a *LineFullError, an *AboveLimitError or ErrRevoked. If the
// server cannot be reached for 10 s, it returns ErrUnreachable; if no program listens at the address at the
// first call, and the client is not one of sentinels, at once. After an error nothing stays held.
func (s *Semaphore) Acquire(ctx context.Context, permits int) (*Permit, error) {
	r, err := newRequest(ctx, s, permits, "")
	if err != nil {
		return nil, err
	}
	b, done := s.gate.begin(ctx, 0)
	defer done()
	permit, err := r.acquire(b)
	s.gate.counts.refuse(err, r.last.word != "")
	return settled(b, permit, err)
}

// Do acquires permits as Acquire does, calls work, and releases them. It does not wait for the reply to the
// release: a later call of this gate for this name runs after it. Its error is that of Acquire, or the one of
// work as it is. A release that fails is logged, and repeated in the background. The context of work ends
// with the cause ErrLost when the permit is lost.
func (s *Semaphore) Do(ctx context.Context, permits int, work func(ctx context.Context, permit *Permit) error) error {
	permit, err := s.Acquire(ctx, permits)
	if err != nil {
		return err
	}
	return do(ctx, permit, work)
}

// DoChecked is Do, but it waits for the reply to the release, and returns ErrLost if work returned no error
// and the permit was not held until its end.
func (s *Semaphore) DoChecked(ctx context.Context, permits int, work func(ctx context.Context, permit *Permit) error) error {
	permit, err := s.Acquire(ctx, permits)
	if err != nil {
		return err
	}
	return doChecked(ctx, permit, work)
}

// key is the name of the semaphore in errors.
func (s *Semaphore) key() string { return s.keys[0] }

// tag is the hash tag of the keys.
func (s *Semaphore) tag() string {
	_, tag, _ := strings.Cut(s.key(), "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

// firstLease is the lease of a grant. A permanent one begins when the caller knows that it holds the permit.
func (s *Semaphore) firstLease() time.Duration {
	if s.Lease == Permanent {
		return DefaultLease
	}
	return cmp.Or(s.Lease, DefaultLease)
}

func (s *Semaphore) isRenewed() bool { return s.AutoRenew && s.Lease != Permanent || s.Lease == 0 }

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
