package luagate

import (
	"context"
	"crypto/rand"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is one address to which a gate has a connection of its own.
type server struct {
	gate    *Gate
	options redis.Options // of the client of the program, without its pool and its retries
	inbox   *inbox

	mu      sync.Mutex // guards the fields below
	current *connection
	opening chan struct{} // closed when the attempt to connect has ended; nil: none runs
	failure error         // of the last attempt
	isOld   bool          // it had a connection before
}

// newServer makes the server that a client with these options uses.
func (g *Gate) newServer(options redis.Options) *server {
	timeout := g.callTimeout / 2
	options.MaxRetries, options.MinIdleConns, options.Limiter = -1, 0, nil
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = timeout, timeout, timeout
	options.ContextTimeoutEnabled = true
	plain(&options)
	s := &server{gate: g, options: options}
	s.inbox = &inbox{server: s, client: redis.NewClient(&options), channel: g.prefix + ":inbox:" + rand.Text()[:9]}
	return s
}

// plain sets what older versions of go-redis do not have: one attempt to connect, and no messages that nobody
// asked for.
func plain(options any) {
	set := func(field string, value any) {
		of := reflect.ValueOf(options).Elem().FieldByName(field)
		switch {
		case !of.IsValid():
		case value == nil:
			of.SetZero()
		default:
			of.Set(reflect.ValueOf(value))
		}
	}
	set("Protocol", 2)
	set("DialerRetries", 1)
	set("PushNotificationProcessor", nil)
	set("ClientSideCache", nil)
	set("ClientSideCacheConfig", nil)
}

// usable returns the open connection, or nil.
func (s *server) usable() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.isUsable() {
		return s.current
	}
	return nil
}

// connection returns the open connection, or opens one.
func (s *server) connection(b bound) (*connection, error) {
	s.mu.Lock()
	if s.current != nil && s.current.isUsable() {
		defer s.mu.Unlock()
		return s.current, nil
	}
	if s.opening == nil {
		s.opening = make(chan struct{})
		go s.open(s.opening)
	}
	opening := s.opening
	s.mu.Unlock()
	b.await(opening, s.gate.callTimeout/2)
	select {
	case <-opening:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.current != nil {
			return s.current, nil
		}
		return nil, s.failure
	default:
		return nil, errNoReply
	}
}

// open opens a connection in half the time of a call, whatever the dialer of the program does.
func (s *server) open(opening chan struct{}) {
	type result struct {
		socket net.Conn
		err    error
	}
	results := make(chan result, 1)
	go func() {
		socket, err := s.dial()
		results <- result{socket, err}
	}()
	var got result
	select {
	case got = <-results:
	case <-time.After(s.gate.callTimeout / 2):
		got.err = errNoReply
		go func() {
			if late := <-results; late.socket != nil {
				late.socket.Close()
			}
		}()
	}
	var opened *connection
	if got.err == nil {
		opened = newConnection(got.socket, s.gate.closing)
	}
	s.mu.Lock()
	if opened != nil && s.isOld && s.gate.lasting.Err() == nil {
		s.gate.counts.reconnects.Add(1)
	}
	s.current, s.failure, s.opening = opened, got.err, nil
	s.isOld = s.isOld || opened != nil
	close(opening)
	s.mu.Unlock()
	if opened != nil && s.gate.lasting.Err() != nil {
		opened.fail(ErrClosed)
	}
}

// dial connects and logs in as a client of go-redis with these options, and takes the connection from it.
func (s *server) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.gate.lasting, s.gate.callTimeout/2)
	defer cancel()
	options := s.options
	var last atomic.Pointer[lent]
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		socket, err := s.options.Dialer(ctx, network, address)
		if err != nil {
			return nil, err
		}
		lent := &lent{Conn: socket}
		last.Store(lent)
		return lent, nil
	}
	client := redis.NewClient(&options)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	taken := last.Load()
	taken.isTaken.Store(true)
	return taken.Conn, taken.Conn.SetDeadline(time.Time{})
}

// lent is a connection that go-redis may not close after it was taken.
type lent struct {
	net.Conn
	isTaken atomic.Bool
}

func (l *lent) Close() error {
	if l.isTaken.Load() {
		return nil
	}
	return l.Conn.Close()
}

// renew lets later calls use another connection: the address may lead to another server.
func (s *server) renew() {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current != nil {
		current.retire(s.gate.callTimeout / 2)
	}
	s.inbox.lose(nil)
}

// close ends the connection and the subscription.
func (s *server) close() {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current != nil {
		current.fail(ErrClosed)
	}
	s.inbox.lose(nil)
	s.inbox.client.Close()
}

// run makes a call that is no script.
func (s *server) run(b bound, words ...any) (any, error) {
	c, err := s.connection(b)
	if err != nil {
		return nil, err
	}
	call := newSent(nil, words...)
	began := time.Now()
	c.send(call)
	if err := c.wait(b, call, began, s.gate.callTimeout/2); err != nil {
		return nil, err
	}
	return call.value, nil
}

// serverOf returns the server that has the keys of a semaphore.
func (g *Gate) serverOf(b bound, key string) (*server, error) {
	if g.cluster == nil {
		return g.single, nil
	}
	type result struct {
		master *redis.Client
		err    error
	}
	var got result
	if g.isReached.Load() { // then the slots are known
		got.master, got.err = g.cluster.MasterForKey(b.ctx, key)
	} else {
		results := make(chan result, 1)
		go func() { // it asks the cluster
			master, err := g.cluster.MasterForKey(context.WithoutCancel(b.ctx), key)
			results <- result{master, err}
		}()
		select {
		case got = <-results:
		case <-b.ctx.Done():
			return nil, b.ctx.Err()
		case <-b.over:
			return nil, ErrClosed
		case <-time.After(b.left(g.callTimeout / 2)):
			return nil, errNoReply
		}
	}
	if got.err != nil {
		return nil, got.err
	}
	return g.serverWith(*got.master.Options()), nil
}

// serverWith returns the server of a cluster with the address in these options.
func (g *Gate) serverWith(options redis.Options) *server {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.servers[options.Addr] == nil {
		g.servers[options.Addr] = g.newServer(options)
	}
	return g.servers[options.Addr]
}

// all returns the servers that the gate has used.
func (g *Gate) all() []*server {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*server
	if g.single != nil {
		all = append(all, g.single)
	}
	for _, one := range g.servers {
		all = append(all, one)
	}
	return all
}

// serverAt returns the server of a cluster to which another one refers. Without a host it is on the host of
// the other one.
func (g *Gate) serverAt(from *server, address string) *server {
	options := from.options
	if strings.HasPrefix(address, ":") {
		host, _, _ := net.SplitHostPort(options.Addr)
		address = host + address
	}
	options.Addr = address
	return g.serverWith(options)
}
