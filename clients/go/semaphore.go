package luagate

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// DefaultLease is the lease of a permit if Semaphore.Lease is 0. It is renewed in the background.
const DefaultLease = 30 * time.Second

// longestHeadStart is the most that the scripts accept.
const longestHeadStart = 24 * time.Hour

var (
	groupedName = regexp.MustCompile(`^\{[^{}]+\}:[^{}]+$`) // a name with a group, which is its hash tag
	validPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
)

// Semaphore grants permits. At most its limit are held at a time. Set its fields before the first call. Nothing is re-entrant.
type Semaphore struct {
	// The lease of each permit, at least 1 ms. Without AutoRenew a permit ends after this time unless Refresh is called.
	// 0: DefaultLease, renewed in the background until the permit is released.
	Lease time.Duration
	// Renews the lease in the background until the permit is released.
	AutoRenew bool
	// If this number of callers or more wait in line, Acquire returns a LineFullError. 0: no bound.
	MaxWaiting int
	// A permit that is released earlier than this after its grant stays in use until then. The lease is not shorter. 0: no
	// minimum.
	AtLeast time.Duration
	// A call joins the line as if it had come that much earlier, up to a day. Only calls that come within the head start after
	// a waiter can overtake it. 0: none.
	HeadStart time.Duration

	client *Client
	keys   []string // meta, holders, queue
	limit  int
	err    error // why the name or the limit is not valid
}

func newSemaphore(client *Client, kind, name string, limit int) *Semaphore {
	tag := "{" + name + "}"
	if groupedName.MatchString(name) {
		tag = name
	}
	key := func(part string) string { return client.prefix + ":" + kind + part + ":" + tag }
	keys := []string{key(""), key(".holders"), key(".queue")}
	return &Semaphore{client: client, keys: keys, limit: limit, err: check(name, limit)}
}

// TryAcquire returns permits at once, or ErrDenied. It does not wait in line.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (*Permit, error) {
	r, err := newRequest(s, permits, newID())
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("luagate: %s: %w", s.key(), err)
	}
	return r.try(ctx, fmt.Errorf("luagate: %s: %w", s.key(), ErrDenied))
}

// Acquire waits in line for permits until ctx is done: first come, first served. Then it asks a last time without waiting. It
// returns the context's error if the permits are not granted, a LineFullError, or ErrRevoked. After an error nothing stays held.
func (s *Semaphore) Acquire(ctx context.Context, permits int) (*Permit, error) {
	r, err := newRequest(s, permits, newID())
	if err != nil {
		return nil, err
	}
	return r.acquire(ctx)
}

// key stands for the semaphore in errors.
func (s *Semaphore) key() string { return s.keys[0] }

// tag is the hash tag of the keys.
func (s *Semaphore) tag() string {
	_, tag, _ := strings.Cut(s.key(), "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

func (s *Semaphore) lease() time.Duration {
	return max(time.Millisecond, cmp.Or(s.Lease, DefaultLease))
}

func (s *Semaphore) isRenewed() bool { return s.AutoRenew || s.Lease == 0 }

func check(name string, limit int) error {
	space := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	switch {
	case len(name) < 1 || len(name) > 200 || strings.ContainsFunc(name, space):
		return invalid("name", name, "1 to 200 bytes without white space and control characters")
	case strings.ContainsAny(name, "{}") && !groupedName.MatchString(name):
		return invalid("name", name, "braces only around a group, as in {group}:name")
	case limit < 1:
		return invalid("limit", limit, "an integer from 1 on")
	}
	return nil
}

func checkPrefix(prefix string) error {
	if !validPrefix.MatchString(prefix) {
		return invalid("prefix", prefix, "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'")
	}
	return nil
}

func invalid(what string, got any, accepted string) error {
	return fmt.Errorf("luagate: %w %s: got %#v. Accepted: %s", ErrInvalid, what, got, accepted)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
