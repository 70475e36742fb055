// Package luagate provides counting semaphores and locks on Redis and Valkey: fair, and with leases.
//
//	gate, err := luagate.New(redis.NewClient(options))
//	market := gate.Semaphore("market:account:17", 5)
//	permit, err := market.Acquire(ctx, 1) // at most five at a time, first come, first served
//	defer permit.Release(ctx)
//
// Goroutines may share all values. Programs in other languages share the same semaphores.
package luagate

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"luagate/scripts"
)

//go:embed lua/manifest.json lua/dist/*/*.lua
var embedded embed.FS

var (
	// ErrDenied: not enough permits are free, or callers wait in line.
	ErrDenied = errors.New("not enough permits are free")
	// ErrLost: the lease of the permit ended, or it was released or revoked.
	ErrLost = errors.New("the permit is lost: its lease ended, or it was released or revoked")
	// ErrRevoked: another client removed the caller from the line.
	ErrRevoked = errors.New("the wait was revoked")
	// ErrInvalid: an argument is not valid, or more permits are requested than the limit. The error says what is accepted.
	ErrInvalid = errors.New("invalid")
)

// LineFullError: the line has MaxWaiting waiters or more.
type LineFullError struct {
	Key                 string // the first key of the semaphore
	Waiting, MaxWaiting int
}

func (e LineFullError) Error() string {
	return fmt.Sprintf("luagate: %s: %d callers wait in line already, and MaxWaiting is %d. Try again later",
		e.Key, e.Waiting, e.MaxWaiting)
}

// Client has the semaphores of one server, and receives the messages for all its waiters.
type Client struct {
	rdb      *redis.Client
	scripts  map[string]*scripts.Script
	prefix   string
	isClosed atomic.Bool
	waiting  sync.Map // the request of each waiting id

	opening sync.Mutex // guards the fields below, which the first wait sets
	pubsub  *redis.PubSub
	inbox   string
}

// Option is a setting of a Client.
type Option func(*settings)

type settings struct {
	prefix string
	folder fs.FS
}

// WithPrefix sets the beginning of all keys. Default: luagate.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithScripts sets another folder lua/ with the scripts. Default: the scripts of this package.
func WithScripts(folder fs.FS) Option { return func(s *settings) { s.folder = folder } }

// New returns a client on this connection pool. Keep its retries: they repeat a call whose reply was lost. A ReadTimeout of 2 s is
// recommended. New sends nothing.
func New(rdb *redis.Client, options ...Option) (*Client, error) {
	set := settings{prefix: "luagate"}
	for _, option := range options {
		option(&set)
	}
	if set.folder == nil {
		folder, err := fs.Sub(embedded, "lua")
		if err != nil {
			return nil, err
		}
		set.folder = folder
	}
	if err := checkPrefix(set.prefix); err != nil {
		return nil, err
	}
	loaded, err := scripts.Load(set.folder)
	if err != nil {
		return nil, err
	}
	return &Client{rdb: rdb, scripts: loaded, prefix: set.prefix}, nil
}

// Semaphore returns the semaphore of this name. At most limit permits are held at a time. The first grant stores the limit, which is
// then in force for all clients. If the name or the limit is invalid, each call of the semaphore returns an error.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return newSemaphore(c, "semaphore", name, limit)
}

// Mutex returns the lock of this name: a semaphore with one permit.
func (c *Client) Mutex(name string) *Semaphore {
	return newSemaphore(c, "mutex", name, 1)
}

// Close ends the subscription and the renewal of leases. Permits stay held until they are released or their leases end. It leaves
// rdb open.
func (c *Client) Close() error {
	c.isClosed.Store(true)
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub == nil {
		return nil
	}
	return c.pubsub.Close()
}

// call runs a script of a semaphore with arguments by name. It is not cancelled by ctx: the server may run a call later, so its
// outcome must be known before a release. The timeouts of the connection bound it.
func (c *Client) call(ctx context.Context, s *Semaphore, name string, arguments map[string]any) (string, reply, error) {
	word, fields, err := c.scripts["semaphore/"+name].CallNamed(context.WithoutCancel(ctx), c.rdb, s.keys, arguments)
	if err != nil {
		return "", nil, fmt.Errorf("luagate: %s: %w", s.key(), err)
	}
	numbers := reply{}
	for name, value := range fields {
		numbers[name] = value.(int64)
	}
	return word, numbers, nil
}

// reply contains the numbers of a reply by their names in the manifest.
type reply map[string]int64

// newID returns a UUID of version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
