package luagate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// forged returns a client whose server is in this process. It answers the calls of scripts with answer:
// hangUp closes the connection.
func forged(answer func() any) *redis.Client { return served(func([]any) any { return answer() }) }

// served is the same, but answer gets the words of the call.
func served(answer func([]any) any) *redis.Client {
	return servedEach(func(_ int, words []any) any { return answer(words) })
}

// servedEach is the same, but answer also gets the number of the connection, from 1 on.
func servedEach(answer func(int, []any) any) *redis.Client {
	var connections atomic.Int32
	return redis.NewClient(&redis.Options{Addr: "forged", Dialer: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		n := int(connections.Add(1))
		go serve(theirs, func(words []any) any { return answer(n, words) })
		return ours, nil
	}})
}

// Replies of a server in this process.
var (
	hangUp = errors.New("closed")
	silent = errors.New("no reply") // from now on

	malformed = errors.New("no reply of the protocol")
)

// withNext is a reply that is sent together with the next one.
type withNext struct{ reply any }

// theLast is a reply after which the connection is closed, as soon as the client has read it.
type theLast struct{ reply any }

func serve(socket net.Conn, answer func([]any) any) {
	defer socket.Close()
	r := bufio.NewReader(socket)
	var held []byte
	for {
		words, err := readReply(r, 0)
		if err != nil {
			return
		}
		var reply any = errors.New("ERR unknown command")
		switch name := strings.ToUpper(words.([]any)[0].(string)); name {
		case "PING":
			reply = "PONG"
		case "EVALSHA", "EVAL":
			reply = answer(words.([]any))
		}
		switch reply {
		case hangUp:
			return
		case silent:
			io.Copy(io.Discard, r)
			return
		}
		if first, isHeld := reply.(withNext); isHeld {
			held = append(held, encoded(first.reply)...)
			continue
		}
		last, isLast := reply.(theLast)
		if isLast {
			reply = last.reply
		}
		if _, err := socket.Write(append(held, encoded(reply)...)); err != nil || isLast {
			return
		}
		held = nil
	}
}

func encoded(reply any) []byte {
	switch reply := reply.(type) {
	case nil:
		return []byte("$-1\r\n")
	case error:
		if reply == malformed {
			return []byte("?\r\n")
		}
		if reply == redis.Nil {
			return encoded(nil)
		}
		return fmt.Appendf(nil, "-%s\r\n", reply)
	case int64, int:
		return fmt.Appendf(nil, ":%d\r\n", reply)
	case []any:
		text := fmt.Appendf(nil, "*%d\r\n", len(reply))
		for _, one := range reply {
			text = append(text, encoded(one)...)
		}
		return text
	case []byte:
		return encoded(string(reply))
	}
	text := fmt.Sprint(reply)
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
}

// next returns the replies in turn, then always the last one.
func next(replies []any) func() any {
	var mu sync.Mutex
	return func() any {
		mu.Lock()
		defer mu.Unlock()
		reply := replies[0]
		if len(replies) > 1 {
			replies = replies[1:]
		}
		return reply
	}
}

const serverTime int64 = 1795205203248

// dice makes random replies.
type dice struct{ *rand.Rand }

func (d dice) number() any {
	known := []int64{-1, 0, 1, 2, 3, serverTime, serverTime + 1, serverTime + 30_000, serverTime * 1000, 1<<31 - 1, 1 << 31, 1 << 53,
		math.MaxInt64, math.MinInt64, -2}
	return known[d.IntN(len(known))]
}

func (d dice) cell() any {
	others := []any{nil, true, 0.5, "a/b", "", []byte("x"), redis.Nil, []any{}}
	if d.IntN(4) > 0 {
		return d.number()
	}
	return others[d.IntN(len(others))]
}

func (d dice) list(longest int, one func() any) any {
	list := make([]any, d.IntN(longest+1))
	for i := range list {
		list[i] = one()
	}
	return list
}

func (d dice) rows() any {
	return d.list(3, func() any { return d.list(6, d.cell) })
}

func (d dice) field() any {
	if d.IntN(6) == 0 {
		return d.rows()
	}
	return d.cell()
}

// row is a list of this number of numbers.
func (d dice) row(length int) any {
	row := make([]any, length)
	for i := range row {
		row[i] = d.number()
	}
	return row
}

var words = []string{"granted", "held", "queued", "denied", "above_limit", "released", "cancelled", "gone", "refreshed", "lost", "resized",
	"unchanged", "other"}

func (d dice) reply() any {
	word := words[d.IntN(len(words))]
	switch d.IntN(6) {
	case 0:
		return d.field()
	case 1:
		return d.list(9, d.field)
	case 2:
		return append([]any{word}, d.list(6, d.field).([]any)...)
	case 3:
		return append([]any{word}, d.row(6).([]any)...)
	case 4:
		return append(d.row(7).([]any), d.rows(), d.rows())
	}
	row := func(length int) func() any { return func() any { return d.row(length) } }
	denied := []any{"denied", d.number(), d.number(), d.number(), d.list(3, row(3)), d.number()}
	return [][]any{{"granted", d.number(), d.list(3, row(5))}, denied}[d.IntN(2)]
}

var callsWithReplies = map[string]func(context.Context, *Semaphore, *Several) error{
	"TryAcquire": func(ctx context.Context, s *Semaphore, _ *Several) error { _, err := s.TryAcquire(ctx, 1); return err },
	"Acquire": func(ctx context.Context, s *Semaphore, _ *Several) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err := s.Acquire(ctx, 1)
		return err
	},
	"Refresh": func(ctx context.Context, s *Semaphore, _ *Several) error { return held(s).Refresh(ctx) },
	"Release": func(ctx context.Context, s *Semaphore, _ *Several) error { _, err := held(s).Release(ctx); return err },
	"Resize":  func(ctx context.Context, s *Semaphore, _ *Several) error { _, err := s.Resize(ctx, 7); return err },
	"Inspect": func(ctx context.Context, s *Semaphore, _ *Several) error { _, err := s.Inspect(ctx); return err },
	"Revoke":  func(ctx context.Context, s *Semaphore, _ *Several) error { _, err := s.Revoke(ctx, "id"); return err },
	"Several.TryAcquire": func(ctx context.Context, _ *Semaphore, several *Several) error {
		permits, err := several.TryAcquire(ctx)
		if err == nil && len(permits.Each) != 2 {
			return fmt.Errorf("%d permits", len(permits.Each))
		}
		return err
	},
}

func held(s *Semaphore) *Permit {
	return newPermit(s, Permit{ID: "a", Permits: 1}, serverTime, clock()+time.Hour)
}

// isOwn is whether it is an error of the kinds that this package documents.
func isOwn(err error) bool {
	return slices.ContainsFunc([]error{ErrDenied, ErrLineFull, ErrAboveLimit, ErrLimitMismatch, ErrLost, ErrRevoked, ErrClosed,
		ErrUnexpectedReply, ErrUnreachable, context.DeadlineExceeded}, func(kind error) bool { return errors.Is(err, kind) })
}

// endsWell makes a call with these replies.
func endsWell(t *testing.T, name string, longest time.Duration, replies ...any) error {
	t.Helper()
	text := fmt.Sprint(name, replies)
	defer func() {
		if panicked := recover(); panicked != nil {
			t.Fatalf("%s: %v", text, panicked)
		}
	}()
	rdb := forged(next(replies))
	defer rdb.Close()
	g, err := New(rdb, WithCallTimeout(longest), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.single.close()
	defer g.end()
	one, other := g.Semaphore("{g}:one", 5), g.Semaphore("{g}:other", 5)
	other.Strict = true
	err = callsWithReplies[name](t.Context(), one, g.Several(one.Want(1), other.Want(1)))
	if err != nil && !isOwn(err) {
		t.Fatalf("%s: %v", text, err)
	}
	return err
}

// Whatever the server replies, a call returns a value or an error of this package.
func TestForgedReplies(t *testing.T) {
	names := slices.Sorted(maps.Keys(callsWithReplies))
	d := dice{rand.New(rand.NewPCG(1, 2))}
	cases, err := strconv.Atoi(cmp.Or(os.Getenv("LUAGATE_CASES"), "500"))
	if err != nil {
		t.Fatal(err)
	}
	for range cases {
		replies := []any{d.reply(), d.reply()}
		endsWell(t, names[d.IntN(len(names))], 5*time.Millisecond, replies[:1+d.IntN(2)]...)
	}
}

// A reply that no script returns is not taken for another one, and the call is not repeated.
func TestUnexpectedReplies(t *testing.T) {
	one, zero, text, usage := int64(1), int64(0), any("1"), []any{int64(1), int64(1), int64(1)}
	grant := []any{one, one, serverTime + 9_999, one, one}
	for _, c := range []struct {
		name  string
		reply any
	}{
		{"TryAcquire", nil},
		{"TryAcquire", redis.Nil},
		{"TryAcquire", one},
		{"TryAcquire", []any{}},
		{"TryAcquire", []any{"other", one}},
		{"TryAcquire", []any{"granted", one, one, serverTime + 9_999, serverTime, one}},
		{"TryAcquire", []any{"granted", one, text, serverTime + 9_999, serverTime, one, one}},
		{"TryAcquire", []any{"denied", int64(-2), one, one, one, serverTime}},
		{"Resize", []any{"unchanged", one, one}},
		{"Inspect", []any{one, one, one, one, one, one, serverTime, []any{[]any{one, one, one, one, one}}, []any{}}},
		{"Inspect", []any{one, one, one, one, one, one, serverTime, []any{}, []any{[]any{"id", one, text, one}}}},
		{"Inspect", []any{one, one, one, one, one, one, serverTime, one, []any{}}},
		{"Several.TryAcquire", []any{"granted", serverTime, []any{grant}}},
		{"Several.TryAcquire", []any{"granted", serverTime, []any{grant, grant[1:]}}},
		{"Several.TryAcquire", []any{"denied", zero, one, serverTime, []any{usage, usage}, zero}},
		{"Several.TryAcquire", []any{"denied", int64(3), one, serverTime, []any{usage, usage}, zero}},
		{"Several.TryAcquire", []any{"denied", one, one, serverTime, []any{usage}, zero}},
		{"Several.TryAcquire", []any{"above_limit", int64(3), one, serverTime, zero}},
	} {
		if err := endsWell(t, c.name, time.Second, c.reply); !errors.Is(err, ErrUnexpectedReply) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s %v: %v", c.name, c.reply, err)
		}
	}
	// A page without rows is the last one.
	if err := endsWell(t, "Inspect", time.Minute, []any{one, one, one, int64(1 << 53), one, one, serverTime, []any{}, []any{}}); err != nil {
		t.Error(err)
	}
}
