package luagate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	inline    = 16 << 10               // bytes without an answer that the buffers of the system surely hold: writing does not wait
	silence   = 100 * time.Millisecond // a connection that says nothing for this time while a call waits is replaced
	unwatched = 10 * time.Millisecond  // then a goroutine reads if nobody else does
)

var (
	errUnsolicited = errors.New("a reply without a call")
	errMixedUp     = errors.New("the connection was closed after an unexpected reply to an earlier call")
)

// connection carries the calls of a gate to one server. Calls do not wait for each other: the server answers
// in the order in which they were sent.
type connection struct {
	socket  net.Conn
	r       *bufio.Reader   // of the one who reads
	closing context.Context // ended by Close of the gate
	stop    func() bool     // lets Close alone

	mu        sync.Mutex // guards the fields below; nobody holds it while a socket may block
	unread    []*sent    // in order
	out       []byte     // not written yet
	spare     []byte     // the buffer of the last write
	size      int        // bytes of all unread calls
	isWriting bool
	isRetired bool        // later calls use another connection
	heard     time.Time   // the last reply
	err       error       // why it has ended
	reader    *sent       // the call whose caller reads; background: a goroutine reads; nil: nobody
	deadline  time.Time   // of reading
	idle      *time.Timer // calls look
	isIdle    bool        // it runs
}

// background stands for the goroutine of a connection that reads while no caller does.
var background = newSent(nil)

// sent is a call on a connection. done is closed when it has an answer, or an error: of the server, or of the
// connection.
type sent struct {
	run      *scriptCall // nil: the words are the command
	words    []any
	withText bool // of the script
	asking   bool // it goes to a node of a cluster that receives the slot
	done     chan struct{}
	then     func(*sent) // nil, or called after that; it must not block
	size     int
	value    any   // nil: it is a script
	answer   reply // of a script
	err      error
}

// newConnection begins to read. closing ends when callers must stop to wait.
func newConnection(socket net.Conn, closing context.Context) *connection {
	c := &connection{socket: socket, r: bufio.NewReader(socket), closing: closing, heard: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = context.AfterFunc(closing, func() { c.interrupt(nil) })
	c.idle, c.isIdle = time.AfterFunc(unwatched, c.look), true
	return c
}

func newSent(run *scriptCall, words ...any) *sent {
	return &sent{run: run, words: words, done: make(chan struct{})}
}

func (s *sent) appendTo(out []byte) []byte {
	if s.run != nil {
		return s.run.appendTo(out, s.withText)
	}
	return appendCommand(out, s.words)
}

func (s *sent) end(err error) {
	s.err = err
	close(s.done)
	if s.then != nil {
		s.then(s)
	}
}

func (s *sent) isAnswered() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
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

// put places calls behind all earlier ones. It returns why the connection has ended, if it has. flush must
// follow, without locks.
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
			c.unread = append(c.unread, newSent(nil))
		}
		c.out = s.appendTo(c.out)
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

// look starts the goroutine that reads, if there was no reader for long enough. It also notices that the server
// closes the connection. While calls follow each other, their callers read: this saves two switches for each.
func (c *connection) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := unwatched - time.Since(c.heard)
	if c.isIdle = c.reader == nil && c.err == nil && left > 0; c.isIdle {
		c.idle.Reset(left)
	} else {
		c.readInBackground()
	}
}

// readInBackground starts the goroutine that reads, if nobody reads. mu is held.
func (c *connection) readInBackground() {
	if c.reader != nil || c.err != nil {
		return
	}
	c.reader = background
	c.setDeadline(time.Time{})
	go func() {
		for c.readOne() {
		}
	}()
}

// setDeadline ends reading at this time. mu is held. If it fails, reading fails.
func (c *connection) setDeadline(at time.Time) {
	c.deadline = at
	_ = c.socket.SetReadDeadline(at)
}

// readUntil reads until this call is answered, or b or this time ends. It returns false if somebody else
// reads. Then, and if the call is not answered in time, the replies are read in the background.
func (c *connection) readUntil(b bound, call *sent, until time.Time) bool {
	c.mu.Lock()
	if c.reader != nil || c.err != nil || b.over != c.closing.Done() {
		c.readInBackground()
		c.mu.Unlock()
		return false
	}
	c.reader = call
	if c.deadline.IsZero() || c.deadline.After(until) {
		c.setDeadline(until)
	}
	c.mu.Unlock()
	if b.ctx.Done() != nil {
		defer context.AfterFunc(b.ctx, func() { c.interrupt(call) })()
	}
	for c.closing.Err() == nil && !call.isAnswered() && (c.readOne() || c.goesOn(b, until)) {
	}
	c.mu.Lock()
	c.leave()
	isOver := c.err != nil
	c.mu.Unlock()
	if isOver {
		<-call.done // its end tells it to all calls
	}
	return true
}

// goesOn is whether the deadline was that of an earlier call: they are not set for each one.
func (c *connection) goesOn(b bound, until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || b.ctx.Err() != nil || !time.Now().Before(until) {
		return false
	}
	c.setDeadline(until)
	return true
}

// leave lets somebody else read: at once if a caller waits for a reply. Nobody waits for that of a posted call.
// mu is held.
func (c *connection) leave() {
	c.reader = nil
	if slices.ContainsFunc(c.unread, func(s *sent) bool { return s.then == nil }) {
		c.readInBackground()
	} else if c.err == nil && !c.isIdle {
		c.isIdle = true
		c.idle.Reset(unwatched)
	}
}

// interrupt ends the reading of the caller of this call. nil: of any caller.
func (c *connection) interrupt(call *sent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader != nil && c.reader != background && (call == nil || c.reader == call) {
		c.setDeadline(time.Unix(1, 0))
	}
}

// readOne passes a reply to its call. It returns whether the reader goes on.
func (c *connection) readOne() bool {
	_, err := c.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false // nothing is lost: another one reads on
	}
	var value any
	if err == nil {
		value, err = readReply(c.r, 0) // a deadline in the middle of a reply ends the connection
	}
	isUnexpected := errors.Is(err, ErrUnexpectedReply)
	if err != nil && !isUnexpected {
		c.fail(err)
		return false
	}
	c.mu.Lock()
	if len(c.unread) == 0 {
		c.mu.Unlock()
		c.fail(errUnsolicited)
		return false
	}
	s := c.unread[0]
	c.unread[0], c.unread = nil, c.unread[1:]
	c.size -= s.size
	c.heard = time.Now()
	isLast := len(c.unread) == 0
	goesOn := !isLast || c.reader != background
	isExtra, isOver := isLast && c.r.Buffered() > 0, isLast && c.isRetired
	if !goesOn { // before the call ends: the next caller reads itself
		c.leave()
	}
	c.mu.Unlock()
	if !isUnexpected {
		err = s.read(value)
		isUnexpected = errors.Is(err, ErrUnexpectedReply)
	}
	switch { // before the call ends: what follows it is not sent here
	case isUnexpected: // the next reply may belong to this call, or to an earlier one
		c.fail(errMixedUp)
	case isExtra:
		c.fail(errUnsolicited)
	case isOver:
		c.fail(net.ErrClosed)
	}
	s.end(err)
	return goesOn
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
	c.idle.Stop()
	c.stop()
	c.socket.Close()
	for _, s := range unread {
		s.end(err)
	}
}

// retire lets later calls use another connection. This one is closed when its calls are answered, or after
// this time.
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
	if c.readUntil(b, call, until) {
		return c.ended(b, call, began, longest)
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-call.done:
	case <-b.ctx.Done():
	case <-b.over:
	case <-timer.C:
	}
	return c.ended(b, call, began, longest)
}

func (c *connection) ended(b bound, call *sent, began time.Time, longest time.Duration) error {
	if call.isAnswered() {
		return call.err
	}
	if c.isSilent(began) {
		c.retire(longest)
	}
	select {
	case <-b.over:
		return ErrClosed
	default:
	}
	return cmp.Or(b.ctx.Err(), errNoReply)
}
