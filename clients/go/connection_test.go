package luagate

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The caller that reads for all ends its wait. The others get their replies.
func TestCancelledCallLeavesTheOthersTheirReplies(t *testing.T) {
	server, asked, ended := &memory{}, make(chan struct{}), make(chan struct{})
	gate := server.open(t, WithCallTimeout(time.Hour)) // nothing is repeated
	n := 0
	server.fault = func(call call) any {
		if call.script != "acquire" {
			return nil
		}
		if n++; n == 1 {
			asked <- struct{}{}
			return withNext{server.run(call, []any{"luagate:semaphore:{first}"}, nil)}
		}
		asked <- struct{}{}
		<-ended
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		if _, err := gate.Semaphore("first", 1).TryAcquire(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-asked
	awaitReader(t, gate, func(reader *sent) bool { return reader != nil && reader != background })
	go func() {
		<-asked
		cancel()
	}()
	waits, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	permit, err := gate.Semaphore("second", 1).TryAcquire(waits, 1)
	if err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if id := server.held["luagate:semaphore:{second}"]; id != permit.ID {
		t.Errorf("%q holds it, and the caller has %s", id, permit.ID)
	}
}

// A connection that is closed while no call waits is noticed: no call is sent on it.
func TestClosedConnectionIsNoticed(t *testing.T) {
	server := &memory{}
	gate := server.open(t)
	line, state := gate.Semaphore("line", 1), []any{1, 0, 0, 0, 0, 0, serverTime, []any{}, []any{}}
	n := 0
	server.fault = func(call) any {
		if n++; n == 2 {
			return theLast{state}
		}
		return state
	}
	for range 2 {
		if _, err := line.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		awaitReader(t, gate, func(reader *sent) bool { return reader == background })
	}
	for end := time.Now().Add(10 * time.Second); gate.single.usable() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the end of the connection is not noticed")
		}
	}
}

// awaitReader waits until this goroutine reads the connection.
func awaitReader(t *testing.T, gate *Gate, isReader func(*sent) bool) {
	t.Helper()
	c, err := gate.single.connection(bound{ctx: t.Context()})
	if err != nil {
		return // it is closed already
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		isThere := isReader(c.reader) || c.err != nil
		c.mu.Unlock()
		if isThere {
			return
		}
	}
	t.Fatal("nobody reads")
}
