// Package luagate provides semaphores and mutexes on Redis or Valkey. It runs the scripts in lua/, like the clients in other
// languages. Goroutines may share all of it.
package luagate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultLease is the lease of a permit if the lease argument is 0.
const DefaultLease = 30 * time.Second

// patience is the time for which the server keeps a waiter's place after the waiter's last call.
const patience = 15 * time.Second

// A name with a group, which is its hash tag.
var grouped = regexp.MustCompile(`^\{[^{}]+\}:[^{}]+$`)

var (
	// ErrDenied: not enough permits are free, or callers wait in line.
	ErrDenied = errors.New("luagate: denied: not enough permits are free")
	// ErrLost: the lease of the permit ended, or it was released or revoked.
	ErrLost = errors.New("luagate: the permit is lost: its lease ended, or it was released or revoked")
	// ErrAboveLimit: more permits than the limit are never granted.
	ErrAboveLimit = errors.New("luagate: more permits than the limit in force: ask for fewer")
	// ErrRevoked: another client removed the caller from the line.
	ErrRevoked = errors.New("luagate: the wait was revoked")
)

// LineFullError: the line has MaxWaiting waiters or more.
type LineFullError struct {
	Name                string // the first key of the semaphore
	Waiting, MaxWaiting int
}

func (e LineFullError) Error() string {
	return fmt.Sprintf("luagate: %s: %d callers wait in line already, and MaxWaiting is %d: try again later",
		e.Name, e.Waiting, e.MaxWaiting)
}

// Client runs the scripts on a server, and receives the messages for all its waiters.
type Client struct {
	rdb     *redis.Client
	scripts map[string]*Script
	prefix  string
	waiting sync.Map   // the Permit of each waiting id
	opening sync.Mutex // guards the fields below, which the first wait sets
	pubsub  *redis.PubSub
	inbox   string
}

// New loads the scripts in the folder lua/. All keys begin with the prefix; an empty prefix means "luagate". Do not turn off the
// retries of rdb: they repeat a call whose reply was lost. A ReadTimeout of 2 s is recommended.
func New(rdb *redis.Client, folder, prefix string) (*Client, error) {
	scripts, err := Load(folder)
	if err != nil {
		return nil, err
	}
	return &Client{rdb: rdb, scripts: scripts, prefix: cmp.Or(prefix, "luagate")}, nil
}

// Close ends the subscription. It leaves rdb open.
func (c *Client) Close() error {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub == nil {
		return nil
	}
	return c.pubsub.Close()
}

// Semaphore grants permits. At most its limit are held at a time.
type Semaphore struct {
	// If this number of callers or more wait in line, Acquire returns a LineFullError. 0: no bound. Set it before the first call.
	MaxWaiting int
	// A permit that is released earlier than this after its grant stays in use until then. The lease is not shorter. 0: no
	// minimum. Set it before the first call.
	AtLeast time.Duration

	client *Client
	keys   []string
	limit  int
	lease  int64 // in ms
}

// Semaphore returns the semaphore of this name. Its first grant stores the limit, which is then in force for all clients.
// Several.TryAcquire needs names that share a group, such as {market}:user:7 and {market}:total.
func (c *Client) Semaphore(name string, limit int, lease time.Duration) *Semaphore {
	return c.semaphore("semaphore", name, limit, lease)
}

// Mutex returns the mutex of this name.
func (c *Client) Mutex(name string, lease time.Duration) *Semaphore {
	return c.semaphore("mutex", name, 1, lease)
}

func (c *Client) semaphore(kind, name string, limit int, lease time.Duration) *Semaphore {
	tag := "{" + name + "}"
	if grouped.MatchString(name) {
		tag = name
	}
	key := func(part string) string { return fmt.Sprintf("%s:%s%s:%s", c.prefix, kind, part, tag) }
	keys := []string{key(""), key(".holders"), key(".queue")}
	leaseMS := max(1, cmp.Or(lease, DefaultLease).Milliseconds())
	return &Semaphore{client: c, keys: keys, limit: limit, lease: leaseMS}
}

// TryAcquire returns a permit, or ErrDenied.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (*Permit, error) {
	p := &Permit{ID: newID(), Permits: permits, semaphore: s}
	return p.try(ctx, ErrDenied)
}

// Acquire waits in line for permits until ctx is done. Then it asks a last time, and returns permits that are free or already
// granted. If the line is full, it returns a LineFullError at once.
func (s *Semaphore) Acquire(ctx context.Context, permits int) (*Permit, error) {
	inbox, err := s.client.listen(ctx)
	if err != nil {
		return nil, err
	}
	p := &Permit{ID: newID(), Permits: permits, semaphore: s, secret: rand.Text(), messages: make(chan message, 8)}
	if inbox != "" {
		p.inbox = inbox + "#" + p.secret
	}
	s.client.waiting.Store(p.ID, p)
	defer s.client.waiting.Delete(p.ID)
	for ctx.Err() == nil {
		last, err := p.ask(ctx, patience)
		if err != nil {
			return nil, err
		}
		if p.Fence > 0 || p.sleep(ctx, last) {
			return p, nil
		}
		if p.revoked {
			p.abandon(time.Now().Add(patience)) // a call sent before the message arrived may have joined the line again
			return nil, ErrRevoked
		}
	}
	over := fmt.Errorf("luagate: %s: not granted before the context ended: %w", s.keys[0], ctx.Err())
	return p.try(context.WithoutCancel(ctx), over)
}

// Permit is held until it is released or its lease ends.
type Permit struct {
	ID            string
	Permits       int
	Fence         int64 // higher than the fence of every earlier permit
	Ticket        int64 // its ticket in line; 0: it did not wait
	semaphore     *Semaphore
	inbox, secret string // the server signs the messages for this wait with the secret
	messages      chan message
	revoked       bool
	asked         time.Time // an instant before the last acquire was sent
	lease         atomic.Pointer[lease]
}

// ask calls the script acquire, which never grants the same id twice.
func (p *Permit) ask(ctx context.Context, wait time.Duration) (reply, error) {
	s := p.semaphore
	arguments := map[string]any{
		"id": p.ID, "permits": p.Permits, "limit": s.limit, "lease_ms": s.lease,
		"wait_ms": wait.Milliseconds(), "inbox": p.inbox, "ticket": p.Ticket,
	}
	if s.MaxWaiting != 0 || s.AtLeast != 0 {
		arguments["max_waiting"], arguments["at_least_ms"] = s.MaxWaiting, s.AtLeast.Milliseconds()
	}
	p.asked = time.Now()
	word, last, err := s.call(ctx, "acquire", arguments)
	switch {
	case err != nil:
		p.abandon(time.Now().Add(patience))
	case word == "granted" || word == "held":
		p.Fence = last["fence"]
		p.lease.Store(newLease(p.asked, last["expires_at"], last["now"]))
	case word == "queued":
		p.Ticket = last["ticket"]
	case word == "above_limit":
		err = ErrAboveLimit
	case word == "denied" && wait > 0:
		err = LineFullError{s.keys[0], int(last["waiting"]), s.MaxWaiting}
	}
	return last, err
}

// try asks without waiting: this takes a grant whose message has not arrived yet, or leaves the line.
func (p *Permit) try(ctx context.Context, denied error) (*Permit, error) {
	if _, err := p.ask(ctx, 0); err != nil {
		return nil, err
	}
	if p.Fence == 0 {
		return nil, denied
	}
	return p, nil
}

// abandon releases the permits of the id, or its place in line. If that fails, it retries each second until the given time.
func (p *Permit) abandon(until time.Time) {
	if _, err := p.Release(context.Background()); err != nil && time.Now().Before(until) {
		time.AfterFunc(time.Second, func() { p.abandon(until) })
	}
}

// ExpiresAt returns the end of the lease by the clock of the server, in ms since 1970.
func (p *Permit) ExpiresAt() int64 { return p.lease.Load().expiresAt }

// Remaining returns the time for which the permit is certainly still held.
func (p *Permit) Remaining() time.Duration { return max(0, time.Until(p.lease.Load().end)) }

// IsLost reports whether the permit was released, or its lease may have ended.
func (p *Permit) IsLost() bool { return p.Remaining() == 0 }

// Refresh starts the lease anew, or returns ErrLost.
func (p *Permit) Refresh(ctx context.Context) error {
	old, asked := p.lease.Load(), time.Now()
	word, last, err := p.semaphore.call(ctx, "refresh", map[string]any{"id": p.ID, "lease_ms": p.semaphore.lease})
	if err != nil {
		return err
	}
	if word == "lost" {
		p.lease.Store(&lease{})
		return ErrLost
	}
	p.lease.CompareAndSwap(old, newLease(asked, last["expires_at"], last["now"])) // unless released meanwhile
	return nil
}

// Release releases the permit, even if ctx is done. It reports whether the permit was still held. A second call does no harm.
func (p *Permit) Release(ctx context.Context) (bool, error) {
	p.lease.Store(&lease{})
	word, _, err := p.semaphore.call(context.WithoutCancel(ctx), "release", map[string]any{"id": p.ID, "keep": 0})
	return word == "released", err
}

type lease struct {
	expiresAt int64     // by the clock of the server
	end       time.Time // by the clock of this process
}

// newLease counts a lease from an instant before the server's time was now, less 1 ms, because the server rounds.
func newLease(from time.Time, expiresAt, now int64) *lease {
	return &lease{expiresAt, from.Add(millis(expiresAt - now - 1))}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// newID returns a UUID of version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
