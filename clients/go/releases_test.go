package luagate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
)

// memory is a server with semaphores of one permit. Before it runs a call, fault may return another reply;
// then the call does not run.
type memory struct {
	mu    sync.Mutex
	held  map[string]string // the id of the holder, by key
	fault func(call call) any
}

// call is a call of a script.
type call struct {
	script     string // without "semaphore/"
	id         string
	connection int // its number, from 1 on, of those with such calls
}

func (m *memory) open(t *testing.T, options ...Option) *Gate {
	t.Helper()
	m.held = map[string]string{}
	var scripts map[string]string
	var connections []int
	rdb := servedEach(func(connection int, words []any) any {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := words[2].(string)[0] - '0'
		if !slices.Contains(connections, connection) {
			connections = append(connections, connection)
		}
		one := call{script: scripts[words[1].(string)], connection: slices.Index(connections, connection) + 1}
		keys, args := words[3:3+n], words[3+n:]
		if one.script != "inspect" {
			one.id = args[0].(string)
		}
		if m.fault != nil {
			if reply := m.fault(one); reply != nil {
				return reply
			}
		}
		return m.run(one, keys, args)
	})
	gate, err := New(rdb, append([]Option{WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	scripts = map[string]string{}
	for name, script := range gate.scripts {
		_, text := script.Command(true)
		scripts[script.SHA1], scripts[text] = name[len("semaphore/"):], name[len("semaphore/"):]
	}
	t.Cleanup(func() { gate.Close() })
	return gate
}

func (m *memory) run(one call, keys, args []any) any {
	key, now := keys[0].(string), time.Now().UnixMilli()
	switch one.script {
	case "acquire":
		if holder := m.held[key]; holder != "" && holder != one.id {
			return []any{"denied", 30_000, 1, 1, 0, now}
		}
		m.held[key] = one.id
		return []any{"granted", 1, now * 1000, now + 30_000, now, 1, 1}
	case "try_acquire_several":
		var permits, usages []any
		index := 0
		for i := 0; i < len(keys); i += 3 {
			isHeld := m.held[keys[i].(string)] != ""
			if isHeld && index == 0 {
				index = i/3 + 1
			}
			permits = append(permits, []any{1, now * 1000, now + 30_000, 1, 1})
			usages = append(usages, []any{1, 1, 0})
		}
		if index > 0 {
			return []any{"denied", index, 30_000, now, usages, 0}
		}
		for i := 0; i < len(keys); i += 3 {
			m.held[keys[i].(string)] = one.id
		}
		return []any{"granted", now, permits}
	case "release":
		if m.held[key] != one.id {
			return []any{"gone", 0, 0, 1}
		}
		delete(m.held, key)
		return []any{"released", 0, 0, 1}
	case "inspect":
		holders := []any{}
		if m.held[key] != "" {
			holders = append(holders, []any{m.held[key], 1, now * 1000, now + 30_000, 0})
		}
		return []any{1, 0, len(holders), len(holders), 0, 0, now, holders, []any{}}
	}
	return errors.New("ERR unknown script")
}

// nothing is the work of a block.
func nothing(context.Context, *Permit) error { return nil }

// The server refuses the release of a block, and the next call is behind it on the connection: the call is
// made once more.
func TestCallIsNotDeniedByAFailedRelease(t *testing.T) {
	for what, refusal := range map[string]error{
		"error":          errors.New("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk"),
		"flushed script": errors.New("NOSCRIPT No matching script. Please use EVAL."),
	} {
		for name, next := range map[string]func(context.Context, *Gate, *Semaphore) error{
			"TryAcquire": func(ctx context.Context, _ *Gate, s *Semaphore) error { _, err := s.TryAcquire(ctx, 1); return err },
			"Several": func(ctx context.Context, g *Gate, s *Semaphore) error {
				_, err := g.Several(g.Semaphore("{g}:other", 1).Want(1), s.Want(1)).TryAcquire(ctx)
				return err
			},
			"Inspect": func(ctx context.Context, _ *Gate, s *Semaphore) error {
				state, err := s.Inspect(ctx)
				if err == nil && state.InUse > 0 {
					err = errors.New("the permit is in use")
				}
				return err
			},
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				server, refusals := &memory{}, 0
				gate := server.open(t)
				s := gate.Semaphore("{g}:line", 1)
				if err := s.Do(t.Context(), 1, nothing); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Inspect(t.Context()); err != nil { // behind the release: the scripts are known
					t.Fatal(err)
				}
				server.mu.Lock()
				server.fault = func(call call) any {
					if call.script == "release" && refusals == 0 {
						refusals++
						return withNext{refusal} // so that the next call is sent before this reply arrives
					}
					return nil
				}
				server.mu.Unlock()
				if err := s.Do(t.Context(), 1, nothing); err != nil {
					t.Fatal(err)
				}
				if err := next(t.Context(), gate, s); err != nil || refusals != 1 {
					t.Errorf("%d refusals, %v", refusals, err)
				}
			})
		}
	}
}

// The denial that comes again stands.
func TestCallIsMadeOnceMoreOnly(t *testing.T) {
	server, denials := &memory{}, 0
	gate := server.open(t)
	s := gate.Semaphore("line", 1)
	server.fault = func(call call) any {
		if call.script == "release" {
			return withNext{errors.New("MISCONF no disk")}
		}
		if call.script == "acquire" && server.held[s.key()] != "" {
			denials++
		}
		return nil
	}
	if err := s.Do(t.Context(), 1, nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if denials != 2 {
		t.Errorf("the server denied %d times", denials)
	}
}

// The connection breaks before a release runs. Its repetition waits, because an earlier attempt to acquire is
// not answered yet. The next call does not overtake it.
func TestCallRunsAfterABrokenRelease(t *testing.T) {
	server := &memory{}
	gate := server.open(t)
	isSilent := false
	server.fault = func(call call) any {
		switch {
		case call.script == "acquire" && call.connection == 1:
			isSilent = true
		case call.script == "release" && call.connection == 2:
			return hangUp
		}
		if isSilent && call.connection == 1 {
			return silent
		}
		return nil
	}
	s := gate.Semaphore("line", 1)
	if err := s.Do(t.Context(), 1, nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// A release is repeated after growing pauses. A call of several that includes its name does not wait for the
// end of the pause.
func TestSeveralRunsAfterARepeatedRelease(t *testing.T) {
	server, refused := &memory{}, make(chan struct{})
	gate := server.open(t)
	refusals := 0
	server.fault = func(call call) any {
		if call.script != "release" || refusals == 10 {
			return nil
		}
		if refusals++; refusals == 10 { // a pause of 90 ms begins
			close(refused)
		}
		return errors.New("MISCONF no disk")
	}
	other, s := gate.Semaphore("{g}:other", 1), gate.Semaphore("{g}:line", 1)
	if err := s.Do(t.Context(), 1, nothing); err != nil {
		t.Fatal(err)
	}
	<-refused
	if _, err := gate.Several(other.Want(1), s.Want(1)).TryAcquire(t.Context()); err != nil {
		t.Error(err)
	}
}

// After a reply that no script gives, the next reply may belong to another call. So no call is sent on this
// connection any more, and the release of the call is sent on another one.
func TestUnexpectedReplyEndsItsConnection(t *testing.T) {
	other := []any{"other"}
	for name, test := range map[string]struct {
		script   string
		reply    any
		run      func(context.Context, *Semaphore) error
		releases int
	}{
		"TryAcquire": {"acquire", other, func(ctx context.Context, s *Semaphore) error { _, err := s.TryAcquire(ctx, 1); return err }, 1},
		"Do":         {"release", other, func(ctx context.Context, s *Semaphore) error { s.Do(ctx, 1, nothing); return ErrUnexpectedReply }, 1},
		"Resize": {"resize", []any{"unchanged", 1, 1}, func(ctx context.Context, s *Semaphore) error {
			_, err := s.Resize(ctx, 7)
			return err
		}, 0},
		"Several": {"try_acquire_several", []any{"granted", 1, []any{}}, func(ctx context.Context, s *Semaphore) error {
			_, err := s.gate.Several(s.Want(1)).TryAcquire(ctx)
			return err
		}, 1},
		"malformed": {"acquire", malformed, func(ctx context.Context, s *Semaphore) error { _, err := s.TryAcquire(ctx, 1); return err }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server, released := &memory{}, make(chan struct{}, 9)
			gate := server.open(t)
			isOdd := false
			server.fault = func(call call) any {
				if isOdd && call.connection == 1 {
					t.Errorf("%s is sent on the connection of the unexpected reply", call.script)
				}
				if !isOdd && call.script == test.script {
					isOdd = true
					return test.reply
				}
				if call.script == "release" {
					released <- struct{}{}
				}
				return nil
			}
			s := gate.Semaphore("line", 1)
			if err := test.run(t.Context(), s); !errors.Is(err, ErrUnexpectedReply) {
				t.Error(err)
			}
			for range test.releases {
				<-released
			}
			if _, err := s.Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A reply too many moves the following ones: a caller does not get the grant of another one.
func TestNobodyGetsTheReplyOfAnother(t *testing.T) {
	server, asked := &memory{}, make(chan struct{})
	gate := server.open(t)
	server.held["luagate:semaphore:{taken}"] = "somebody"
	n := 0
	server.fault = func(call call) any {
		if call.connection > 1 || call.script != "acquire" {
			return nil
		}
		if n++; n == 1 {
			close(asked)
			return withNext{[]any{"other"}}
		}
		return server.run(call, []any{"luagate:semaphore:{free}"}, nil)
	}
	go gate.Semaphore("free", 1).TryAcquire(t.Context(), 1)
	<-asked
	if _, err := gate.Semaphore("taken", 1).TryAcquire(t.Context(), 1); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
}
