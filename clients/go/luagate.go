// Package luagate provides counting semaphores and locks on Redis and Valkey: fair, and with leases.
//
//	gate, err := luagate.New(redis.NewClient(options))
//	market := gate.Semaphore("market:account:17", 5)
//	permit, err := market.Acquire(ctx, 1) // at most five at a time, first come, first served
//	defer permit.Release(ctx)
//
// Goroutines may share all values. Programs in other languages share the same semaphores.
//
// Every call returns when its context ends. A call without a deadline ends within the call timeout of the
// gate, except Acquire, which waits. Permits that a call may have acquired are then released in the
// background.
package luagate

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate/scripts"
)

//go:embed lua/manifest.json lua/dist/*/*.lua
var embedded embed.FS

// Gate has the semaphores of one server or cluster, and receives the messages for all its waiters.
type Gate struct {
	single      *server              // nil: a cluster
	cluster     *redis.ClusterClient // which tells the masters; nil: a single server
	scripts     map[string]*scripts.Script
	prefix      string
	label       string
	callTimeout time.Duration
	log         log
	isReached   atomic.Bool // the server has answered a call
	waiting     sync.Map    // the request of each waiting id
	counts      counts
	delays      atomic.Uint64 // attempts to release that a call sent after them may have overtaken

	closing context.Context // of calls of users; ended by Close
	refuse  context.CancelFunc
	lasting context.Context // of the background; ended by Close at last
	end     context.CancelFunc

	mu       sync.Mutex // guards the fields below
	isClosed bool
	running  sync.WaitGroup        // calls of users, and work in the background
	servers  map[string]*server    // of a cluster, by address
	releases map[string][]*release // that the server has not confirmed, by the key of the semaphore
}

// Option is a setting of a Gate.
type Option func(*settings)

type settings struct {
	prefix      string
	label       string
	folder      fs.FS
	callTimeout time.Duration
	logger      *slog.Logger
}

// WithPrefix sets the beginning of all keys. Default: luagate.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithScripts sets another folder lua/ with the scripts. Default: the scripts of this package.
func WithScripts(folder fs.FS) Option { return func(s *settings) { s.folder = folder } }

// WithLabel sets a text before the id of each permit: 1 to 163 bytes without white space. The Label of a
// semaphore replaces it.
func WithLabel(label string) Option {
	return func(s *settings) { s.label = label }
}

// WithCallTimeout sets the longest time of a call that does not wait in line: 1 ms to 1 hour. Default: 4 s.
func WithCallTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.callTimeout = timeout }
}

// WithLogger sets where failed renewals, failed releases and losses are logged, in a goroutine of its own.
// Default: slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(s *settings) { s.logger = logger } }

// New returns a gate on the server of a *redis.Client (also of sentinels), of a *redis.ClusterClient, or of a
// client of your own that embeds one of them. The gate has a connection of its own to each server, with the
// settings of rdb, but not with its pool, its retries and its hooks. New sends nothing.
func New(rdb redis.UniversalClient, options ...Option) (*Gate, error) {
	set := settings{prefix: "luagate", callTimeout: 4 * time.Second, logger: slog.Default()}
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
	if err := set.check(); err != nil {
		return nil, err
	}
	loaded, err := scripts.Load(set.folder)
	if err != nil {
		return nil, err
	}
	g := &Gate{scripts: loaded, prefix: set.prefix, label: set.label, callTimeout: set.callTimeout}
	g.log.logger = set.logger
	g.closing, g.refuse = context.WithCancel(context.Background())
	g.lasting, g.end = context.WithCancel(context.Background())
	g.servers, g.releases = map[string]*server{}, map[string][]*release{}
	if err := g.use(rdb); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *Gate) use(rdb redis.UniversalClient) error {
	switch rdb := embeddedClient(rdb).(type) {
	case *redis.Client:
		if rdb != nil {
			g.single = g.newServer(*rdb.Options())
			return nil
		}
	case *redis.ClusterClient:
		if rdb != nil {
			options := *rdb.Options()
			options.MaxRetries, options.MinIdleConns, options.ContextTimeoutEnabled = -1, 0, true
			plain(&options)
			g.cluster = redis.NewClusterClient(&options)
			return nil
		}
	} // a *redis.Ring has no node that receives the messages of all nodes
	return fmt.Errorf("luagate: %w client: got %T. Accepted: a *redis.Client, also of sentinels, or a *redis.ClusterClient", ErrInvalid,
		rdb)
}

// embeddedClient returns the client of go-redis that a client of the program embeds.
func embeddedClient(rdb redis.UniversalClient) redis.UniversalClient {
	switch rdb.(type) {
	case nil, *redis.Client, *redis.ClusterClient, *redis.Ring:
		return rdb
	}
	value := reflect.Indirect(reflect.ValueOf(rdb))
	for i := 0; value.Kind() == reflect.Struct && i < value.NumField(); i++ {
		if field := value.Type().Field(i); field.Anonymous && field.IsExported() {
			if inner, isClient := value.Field(i).Interface().(redis.UniversalClient); isClient {
				return embeddedClient(inner)
			}
		}
	}
	return rdb
}

// Semaphore returns the semaphore of this name. At most limit permits are held at a time. The first grant
// stores the limit, which is then in force for all clients. If the name or the limit is invalid, each call of
// the semaphore returns ErrInvalid.
func (g *Gate) Semaphore(name string, limit int) *Semaphore {
	return newSemaphore(g, "semaphore", name, limit)
}

// Mutex returns the lock of this name: a semaphore with one permit.
func (g *Gate) Mutex(name string) *Semaphore {
	return newSemaphore(g, "mutex", name, 1)
}

// RWLock returns the lock of this name for readers and writers. They wait in one line.
func (g *Gate) RWLock(name string) *RWLock {
	read, write := newSemaphore(g, "rwlock", name, most), newSemaphore(g, "rwlock", name, most)
	write.isWriter = true
	return &RWLock{Read: read, Write: write}
}

// Close ends waits, calls and renewals: they return ErrClosed. It waits up to 1 s until waiters have left the
// line. Permits stay held until their leases end. It leaves the client of the program open.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.isClosed = true
	g.mu.Unlock()
	g.refuse()
	ended := make(chan struct{})
	go func() {
		g.running.Wait()
		g.log.flush()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closing):
	}
	g.end()
	for _, one := range g.all() {
		one.close()
	}
	if g.cluster != nil {
		g.cluster.Close()
	}
	return nil
}

// newID returns a UUID of version 4, after the label if there is one.
func newID(label string) string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	if label != "" {
		label += "/"
	}
	id := append(make([]byte, 0, 200), label...)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			id = append(id, '-')
		}
		id = hex.AppendEncode(id, part)
	}
	return string(id)
}
