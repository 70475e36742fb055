package luagate

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		usage    Usage
		hold     time.Duration
		expected time.Duration
	}{
		{Usage{Limit: 5, Waiting: 9}, time.Second, 2 * time.Second},
		{Usage{Limit: 5}, 0, time.Millisecond},
		{Usage{}, time.Second, time.Second},
		{Usage{Limit: 1, Waiting: math.MaxInt32}, math.MaxInt64, math.MaxInt64},
	} {
		if got := c.usage.RetryAfter(c.hold); got != c.expected {
			t.Errorf("%v, %v: got %v, expected %v", c.usage, c.hold, got, c.expected)
		}
	}
}

// A refusal names the rule of the ACL to add.
func TestPermission(t *testing.T) {
	g := &Gate{prefix: "shop"}
	for answer, add := range map[string]string{
		"NOPERM this user has no permissions to run the 'subscribe' command":                     "+subscribe",
		"NOPERM User client has no permissions to run the 'pubsub|numsub' command":               "+pubsub|numsub",
		"NOPERM No permissions to access a channel":                                              "&shop:inbox:*",
		"NOPERM this user has no permissions to access one of the keys used as arguments":        "~shop:*",
		"ERR ACL failure in script: User client has no permissions to run the 'zadd' command":    "+zadd",
		"ERR The user executing the script can't run this command or subcommand script: 1f":      "README",
		"WRONGPASS invalid username-password pair or user is disabled.":                          "Correct the user name and the password",
		"ERR Protocol error: unauthenticated multibulk length":                                   "Correct the user name and the password",
		"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO": "Correct the user name and the password",
	} {
		err := g.explained("place", answer, errors.New(answer))
		if !errors.Is(err, ErrNoPermission) || !strings.Contains(err.Error(), add) {
			t.Errorf("%s: got %v, expected %s", answer, err, add)
		}
	}
	if err := g.explained("place", "OOM command not allowed", nil); err != nil {
		t.Error(err)
	}
	missing := "ERR Error compiling script: Script attempted to access nonexistent global variable 'struct'"
	if err := g.explained("place", missing, errors.New(missing)); err == nil || errors.Is(err, ErrNoPermission) {
		t.Error(err)
	}
}

// An error of the connection is never taken for the end of the caller's context.
func TestUnreachableIsNoTimeout(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled, nil, redis.ErrClosed} {
		err := unreachable("place", cause)
		if !errors.Is(err, ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// The end of an attempt is never taken for the deadline of the caller's context.
func TestCancelledIsNoTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	rdb := forged(func() any {
		if attempts++; attempts == 2 {
			cancel()
		}
		return hangUp
	})
	defer rdb.Close()
	g, err := New(rdb, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, err = g.Mutex("m").TryAcquire(ctx, 1)
	if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Asking for the channel again and again leaves nothing behind.
func TestLostIsOneChannel(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	g, err := New(rdb, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := g.Mutex("m")
	s.Lease = time.Hour
	notices := make(chan string, 2)
	s.OnLost = func(id string) { notices <- id }
	permit := newPermit(s, Permit{ID: "a"}, 0, clock()+time.Hour)
	several := &Permits{Each: []*Permit{permit}}
	if permit.Lost() != permit.Lost() || several.Lost() != several.Lost() {
		t.Error("each call returns another channel")
	}
	permit.lease.mu.Lock()
	permit.lease.reportLoss()
	permit.lease.mu.Unlock()
	<-permit.Lost()
	<-several.Lost()
	if id := <-notices; id != "a" {
		t.Error(id)
	}
}

func TestLabelOf(t *testing.T) {
	for id, label := range map[string]string{newID(""): "", newID("a/b"): "a/b", "my/own-id": ""} {
		if got := labelOf(id); got != label {
			t.Errorf("%s: got %q, expected %q", id, got, label)
		}
	}
}
