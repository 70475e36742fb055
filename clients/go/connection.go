package luagate

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	inline  = 16 << 10               // bytes without an answer that the buffers of the system surely hold: writing does not wait
	silence = 100 * time.Millisecond // a connection that says nothing for this time while a call waits is replaced
)

var (
	errUnsolicited = errors.New("a reply without a call")
	errMixedUp     = errors.New("the connection was closed after an unexpected reply to an earlier call")
)

// connection carries the calls of a gate to one server. Calls do not wait for each other: the server answers in the order in which
// they were sent.
type connection struct {
	socket net.Conn

	mu        sync.Mutex // guards the fields below; nobody holds it while a socket may block
	unread    []*sent    // in order
	out       []byte     // not written yet
	spare     []byte     // the buffer of the last write
	size      int        // bytes of all unread calls
	isWriting bool
	isRetired bool      // later calls use another connection
	heard     time.Time // the last reply
	err       error     // why it has ended
}

// sent is a call on a connection. done is closed when it has an answer, or an error: of the server, or of the connection.
type sent struct {
	run    *scriptCall // nil: it is no script
	words  []any
	asking bool // it goes to a node of a cluster that receives the slot
	done   chan struct{}
	then   func(*sent) // nil, or called after that; it must not block
	size   int
	value  any   // nil: it is a script
	answer reply // of a script
	err    error
}

func newConnection(socket net.Conn) *connection {
	c := &connection{socket: socket, heard: time.Now()}
	go c.read()
	return c
}

func newSent(words ...any) *sent { return &sent{words: words, done: make(chan struct{})} }

func (s *sent) end(err error) {
	s.err = err
	close(s.done)
	if s.then != nil {
		s.then(s)
	}
}

// read takes the reply, and returns what is wrong with it.
func (s *sent) read(value any) (err error) {
	answer, isError := value.(serverError)
	switch {
	case isError:
		return answer
	case s.run != nil:
		s.answer, err = s.run.read(value)
	default:
		s.value = value
	}
	return err
}

// send sends calls behind all earlier ones, in one packet.
func (c *connection) send(calls ...*sent) { c.flush(calls, c.put(calls)) }

// put places calls behind all earlier ones. It returns why the connection has ended, if it has. flush must follow, without locks.
func (c *connection) put(calls []*sent) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for _, s := range calls {
		before := len(c.out)
		if s.asking {
			c.out = appendCommand(c.out, []any{"ASKING"})
			c.unread = append(c.unread, newSent())
		}
		c.out = appendCommand(c.out, s.words)
		s.size = len(c.out) - before
		c.size += s.size
		c.unread = append(c.unread, s)
	}
	return nil
}

// flush sends what put has placed, or ends these calls with its error.
func (c *connection) flush(calls []*sent, err error) {
	if err != nil {
		for _, s := range calls {
			s.end(err)
		}
		return
	}
	c.mu.Lock()
	if c.isWriting || len(c.out) == 0 {
		c.mu.Unlock()
		return
	}
	c.isWriting = true
	isFull := c.size > inline
	c.mu.Unlock()
	if isFull {
		go c.write()
	} else {
		c.write()
	}
}

// write writes what was sent. What comes meanwhile is written by another goroutine.
func (c *connection) write() {
	c.mu.Lock()
	out := c.out
	c.out, c.spare = c.spare[:0], nil
	c.mu.Unlock()
	_, err := c.socket.Write(out)
	if err != nil {
		c.fail(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare = out
	if c.isWriting = len(c.out) > 0; c.isWriting {
		go c.write()
	}
}

// read passes each reply to its call.
func (c *connection) read() {
	r := bufio.NewReader(c.socket)
	for {
		value, err := readReply(r, 0)
		isUnexpected := errors.Is(err, ErrUnexpectedReply)
		if err != nil && !isUnexpected {
			c.fail(err)
			return
		}
		c.mu.Lock()
		if len(c.unread) == 0 {
			c.mu.Unlock()
			c.fail(errUnsolicited)
			return
		}
		s := c.unread[0]
		c.unread[0], c.unread = nil, c.unread[1:]
		c.size -= s.size
		c.heard = time.Now()
		isLast := c.isRetired && len(c.unread) == 0
		c.mu.Unlock()
		if !isUnexpected {
			err = s.read(value)
			isUnexpected = errors.Is(err, ErrUnexpectedReply)
		}
		switch { // before the call ends: what follows it is not sent here
		case isUnexpected: // the next reply may belong to this call, or to an earlier one
			c.fail(errMixedUp)
		case isLast:
			c.fail(net.ErrClosed)
		}
		s.end(err)
		if isUnexpected || isLast {
			return
		}
	}
}

// fail ends the connection. Nobody knows whether the server runs the calls that it has not answered.
func (c *connection) fail(err error) {
	c.mu.Lock()
	unread := c.unread
	if c.err == nil {
		c.err = err
	}
	c.unread = nil
	c.mu.Unlock()
	c.socket.Close()
	for _, s := range unread {
		s.end(err)
	}
}

// retire lets later calls use another connection. This one is closed when its calls are answered, or after this time.
func (c *connection) retire(longest time.Duration) {
	c.mu.Lock()
	wasRetired, isIdle := c.isRetired, len(c.unread) == 0
	c.isRetired = true
	c.mu.Unlock()
	switch {
	case isIdle:
		c.fail(net.ErrClosed)
	case !wasRetired:
		time.AfterFunc(longest, func() { c.fail(errNoReply) })
	}
}

// isUsable is whether it takes another call.
func (c *connection) isUsable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.isRetired
}

// isSilent is whether the server has said nothing since a call was sent, for a time in which it should.
func (c *connection) isSilent(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(since) >= silence && c.heard.Before(since)
}

// wait returns the error of a call when it is answered, or one when b ends or this time is over.
func (c *connection) wait(b bound, call *sent, began time.Time, longest time.Duration) error {
	until := began.Add(longest)
	if !b.until.IsZero() && b.until.Before(until) {
		until = b.until
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	var err error
	select {
	case <-call.done:
		return call.err
	case <-b.ctx.Done():
		err = b.ctx.Err()
	case <-b.over:
		err = ErrClosed
	case <-timer.C:
		err = errNoReply
	}
	if c.isSilent(began) {
		c.retire(longest)
	}
	return err
}
