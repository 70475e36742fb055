// Package luagate is a client of the scripts in lua/: semaphores and mutexes on Redis or Valkey, shared with programs in
// other languages. All of it may be used by many goroutines at once.
package luagate

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a waiter that does not ask again stays in line.
const patience = 15 * time.Second

var (
	ErrDenied = errors.New("luagate: denied")             // not enough is free
	ErrLost   = errors.New("luagate: the permit is lost") // its lease has ended, or it was released
)

// Script is a script of the manifest.
type Script struct {
	Parts, Keys, Argv []string
	SHA1, text        string
	Replies           map[string][]string
}

// Client runs the scripts on a server, and listens there for all that wait.
type Client struct {
	Scripts map[string]*Script
	rdb     *redis.Client
	prefix  string
	waiting sync.Map   // the *Permit of each id that waits
	opening sync.Mutex // of the inbox
	pubsub  *redis.PubSub
	inbox   string
}

// New loads the scripts in the folder lua/. Leave rdb its retries: they repeat a call whose reply was lost.
func New(rdb *redis.Client, folder, prefix string) (*Client, error) {
	var manifest struct {
		Contract int
		Scripts  map[string]*Script
	}
	text, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err == nil && manifest.Contract != 1 {
		err = fmt.Errorf("luagate: the contract of the scripts is %d, not 1", manifest.Contract)
	}
	for _, script := range manifest.Scripts {
		for _, part := range script.Parts {
			text, e := os.ReadFile(filepath.Join(folder, part))
			script.text, err = script.text+string(text), errors.Join(err, e)
		}
	}
	return &Client{Scripts: manifest.Scripts, rdb: rdb, prefix: cmp.Or(prefix, "luagate")}, err
}

// Close ends the listening. It leaves rdb open.
func (c *Client) Close() error {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub == nil {
		return nil
	}
	return c.pubsub.Close()
}

// Run runs the script, and loads it where the server does not know it.
func (s *Script) Run(ctx context.Context, rdb *redis.Client, keys []string, args ...any) *redis.Cmd {
	call := rdb.EvalSha(ctx, s.SHA1, keys, args...)
	if redis.HasErrorPrefix(call.Err(), "NOSCRIPT") {
		rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.ScriptLoad(ctx, s.text)
			call = pipe.EvalSha(ctx, s.SHA1, keys, args...)
			return nil
		})
	}
	if redis.HasErrorPrefix(call.Err(), "NOSCRIPT") { // somebody's SCRIPT FLUSH came in between
		call = rdb.Eval(ctx, s.text, keys, args...)
	}
	return call
}

// Semaphore hands out permits, as many at a time as its limit.
type Semaphore struct {
	client *Client
	keys   []string
	limit  int
	lease  int64 // in ms
}

// Semaphore returns the semaphore of this name. Its first grant stores the limit. A lease of 0 is one of 30 s.
func (c *Client) Semaphore(name string, limit int, lease time.Duration) *Semaphore {
	return c.semaphore("semaphore", name, limit, lease)
}

// Mutex returns the mutex of this name. A lease of 0 is one of 30 s.
func (c *Client) Mutex(name string, lease time.Duration) *Semaphore {
	return c.semaphore("mutex", name, 1, lease)
}

func (c *Client) semaphore(kind, name string, limit int, lease time.Duration) *Semaphore {
	key := func(part string) string { return fmt.Sprintf("%s:%s%s:{%s}", c.prefix, kind, part, name) }
	ms := max(1, cmp.Or(lease, 30*time.Second).Milliseconds())
	return &Semaphore{c, []string{key(""), key(".holders"), key(".queue")}, limit, ms}
}

// call runs a script with arguments by name, and returns the word of its reply and the numbers in it by name.
func (s *Semaphore) call(ctx context.Context, name string, arguments map[string]any) (string, map[string]int64, error) {
	script := s.client.Scripts["semaphore/"+name]
	var args []any
	for _, argument := range script.Argv {
		args = append(args, arguments[argument])
	}
	values, err := script.Run(ctx, s.client.rdb, s.keys, args...).Slice()
	if err != nil {
		return "", nil, err
	}
	word, reply := values[0].(string), map[string]int64{}
	for i, field := range script.Replies[word] {
		reply[field] = values[i+1].(int64)
	}
	return word, reply, nil
}

// TryAcquire returns a permit, or ErrDenied.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (*Permit, error) {
	p := &Permit{ID: newID(), Permits: permits, semaphore: s}
	return p.try(ctx, ErrDenied)
}

// Acquire waits in line for a permit until ctx is done. A permit that is on its way by then is returned all the same.
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
		reply, err := p.ask(ctx, patience)
		if err != nil {
			return nil, err
		}
		if p.Fence > 0 || p.sleep(ctx, reply) {
			return p, nil
		}
	}
	return p.try(context.WithoutCancel(ctx), ctx.Err()) // gives up
}

// Permit is held until it is released, or its lease has ended.
type Permit struct {
	ID            string
	Permits       int
	Fence         int64 // higher than that of every permit before
	Ticket        int64 // its place in line, 0 if it did not wait
	semaphore     *Semaphore
	inbox, secret string
	messages      chan message
	asked         time.Time // before the last acquire was sent
	lease         atomic.Pointer[lease]
}

type lease struct {
	expiresAt int64     // by the clock of the server
	end       time.Time // by the clock of this process
}

// ask calls acquire, which never grants twice to the same id.
func (p *Permit) ask(ctx context.Context, wait time.Duration) (map[string]int64, error) {
	p.asked = time.Now()
	word, reply, err := p.semaphore.call(ctx, "acquire", map[string]any{
		"id": p.ID, "permits": p.Permits, "limit": p.semaphore.limit, "lease_ms": p.semaphore.lease,
		"wait_ms": wait.Milliseconds(), "inbox": p.inbox, "ticket": p.Ticket,
	})
	switch {
	case err != nil:
		p.abandon(time.Now().Add(wait))
	case word == "granted" || word == "held":
		p.Fence = reply["fence"]
		p.lease.Store(&lease{reply["expires_at"], end(p.asked, reply["expires_at"], reply["now"])})
	case word == "queued":
		p.Ticket = reply["ticket"]
	}
	return reply, err
}

// try asks once and does not wait. A place in line is given up, or a permit taken that was on its way.
func (p *Permit) try(ctx context.Context, denied error) (*Permit, error) {
	if _, err := p.ask(ctx, 0); err != nil {
		return nil, err
	}
	if p.Fence == 0 {
		return nil, denied
	}
	return p, nil
}

// abandon gives the id back, whatever has become of it. Where that fails, it does so later, while the id may be in line.
func (p *Permit) abandon(until time.Time) {
	if _, err := p.Release(context.Background()); err != nil && time.Now().Before(until) {
		time.AfterFunc(time.Second, func() { p.abandon(until) })
	}
}

// sleep waits until it is time to ask again. It says whether a message has granted the permit.
func (p *Permit) sleep(ctx context.Context, reply map[string]int64) bool {
	pause := min(5*time.Second, millis(reply["retry_after"]))
	if ahead := reply["position"] - 1; ahead > 0 {
		pause = min(pause, time.Duration(ahead)*time.Second)
	}
	wake := time.Now().Add(pause)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Until(wake)):
			return false
		case m := <-p.messages:
			switch {
			case m.now < reply["now"]: // old news
			case m.fence == 0: // a hint
				wake = earlier(wake, m.received.Add(millis(m.at-m.now)))
			case m.fence > p.Ticket && m.permits == p.Permits:
				p.Fence = m.fence
				p.lease.Store(&lease{m.at, earlier(end(p.asked, m.at, reply["now"]), end(m.received, m.at, m.now))})
				return true
			}
		}
	}
}

// ExpiresAt returns when the lease ends by the clock of the server, in milliseconds since 1970.
func (p *Permit) ExpiresAt() int64 { return p.lease.Load().expiresAt }

// Remaining returns how long the permit is still held for certain.
func (p *Permit) Remaining() time.Duration { return max(0, time.Until(p.lease.Load().end)) }

// IsLost says whether the permit may not be held any more.
func (p *Permit) IsLost() bool { return p.Remaining() == 0 }

// Refresh begins the lease anew, or returns ErrLost.
func (p *Permit) Refresh(ctx context.Context) error {
	old, asked := p.lease.Load(), time.Now()
	word, reply, err := p.semaphore.call(ctx, "refresh", map[string]any{"id": p.ID, "lease_ms": p.semaphore.lease})
	if err != nil {
		return err
	}
	if word == "lost" {
		p.lease.Store(&lease{})
		return ErrLost
	}
	renewed := &lease{reply["expires_at"], end(asked, reply["expires_at"], reply["now"])}
	p.lease.CompareAndSwap(old, renewed) // unless it was released in the meantime
	return nil
}

// Release gives the permit back, even if ctx is done, and says whether it was still held.
func (p *Permit) Release(ctx context.Context) (bool, error) {
	p.lease.Store(&lease{})
	word, _, err := p.semaphore.call(context.WithoutCancel(ctx), "release", map[string]any{"id": p.ID, "keep": 0})
	return word == "released", err
}

// message grants permits until at. With the fence 0 it grants nothing, and hints to ask again at that time.
type message struct {
	permits        int
	fence, at, now int64
	received       time.Time
}

// signed matches the text of a message: what is signed, which begins with the id, and the signature.
var signed = regexp.MustCompile(`^((\S+) \d+ \d+ (?:\d+|-1) \d+) ([0-9a-f]{40})$`)

// listen opens the inbox once. It is empty where a proxy keeps messages away: then all who wait only ask again.
func (c *Client) listen(ctx context.Context) (string, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub != nil {
		return c.inbox, nil
	}
	inbox := c.prefix + ":inbox:" + newID()
	pubsub := c.rdb.Subscribe(ctx, inbox)
	_, err := pubsub.ReceiveTimeout(ctx, c.rdb.Options().ReadTimeout)
	if err == nil { // the scripts pass over in silence what an ACL forbids, so it is tried here
		err = c.rdb.Publish(ctx, inbox, "hello").Err()
	}
	var listeners map[string]int64
	if err == nil {
		listeners, err = c.rdb.PubSubNumSub(ctx, inbox).Result()
	}
	if err != nil {
		pubsub.Close()
		return "", err
	}
	c.pubsub = pubsub
	if listeners[inbox] > 0 {
		c.inbox = inbox
		go c.hear(pubsub.ChannelWithSubscriptions())
	}
	return c.inbox, nil
}

// hear hands each message to the one who waits for it.
func (c *Client) hear(events <-chan any) {
	for event := range events {
		m := message{received: time.Now()}
		switch event := event.(type) {
		case *redis.Subscription: // stands again after it was lost: all ask again at once
			m.at, m.now = math.MaxInt64, math.MaxInt64
			c.waiting.Range(func(_, p any) bool { return p.(*Permit).tell(m) })
		case *redis.Message:
			parts := signed.FindStringSubmatch(event.Payload)
			if parts == nil {
				continue
			}
			fmt.Sscan(parts[1], new(string), &m.permits, &m.fence, &m.at, &m.now)
			p, waits := c.waiting.Load(parts[2])
			if waits && parts[3] == fmt.Sprintf("%x", sha1.Sum([]byte(p.(*Permit).secret+parts[1]))) {
				p.(*Permit).tell(m)
			}
		}
	}
}

// tell drops a message when too many are unread: the next call to ask brings what it said.
func (p *Permit) tell(m message) bool {
	select {
	case p.messages <- m:
	default:
	}
	return true
}

// newID returns a UUID of version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// end returns when a lease ends here that ends there at expiresAt, counted from an instant at which it was not yet
// later there than now. 1 ms less makes up for the rounding there.
func end(from time.Time, expiresAt, now int64) time.Time {
	return from.Add(millis(expiresAt - now - 1))
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
