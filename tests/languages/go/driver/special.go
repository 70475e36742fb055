package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

// checkArguments passes invalid arguments of every kind that Go can pass. The address has no server: nothing may be sent.
func checkArguments() ([]string, error) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	g, err := luagate.New(rdb)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	ctx := context.Background()
	total, wrong := 0, []string(nil)
	check := func(what string, err error) {
		total++
		if !errors.Is(err, luagate.ErrInvalid) || !strings.Contains(err.Error(), " Accepted: ") || len(err.Error()) >= 400 {
			wrong = append(wrong, fmt.Sprintf("%s: %.300v", what, err))
		}
	}
	acquire := func(what string, ctx context.Context, s *luagate.Semaphore, permits int) {
		_, err := s.TryAcquire(ctx, permits)
		check(what+" of TryAcquire", err)
		_, err = s.Acquire(ctx, permits)
		check(what+" of Acquire", err)
		_, err = g.Several(s.Want(permits)).Acquire(ctx)
		check(what+" of Several", err)
		check(what+" of Do", s.Do(ctx, permits, func(context.Context, *luagate.Permit) error { return nil }))
	}
	for _, name := range []string{"", "a b", "a\x00", "{", "}a", "{a}b", strings.Repeat("a", 201), strings.Repeat("a", 10_000)} {
		acquire(fmt.Sprintf("name %.10q", name), ctx, g.Semaphore(name, 1), 1)
		acquire(fmt.Sprintf("name %.10q of a mutex", name), ctx, g.Mutex(name), 1)
		acquire(fmt.Sprintf("name %.10q of a lock", name), ctx, g.RWLock(name).Write, 1)
	}
	for _, n := range []int{0, -1, math.MaxInt32 + 1, math.MinInt, math.MaxInt} {
		acquire(fmt.Sprint("limit ", n), ctx, g.Semaphore("m", n), 1)
		acquire(fmt.Sprint("permits ", n), ctx, g.Semaphore("m", 1), n)
		_, err := g.Semaphore("m", 1).Resize(ctx, n)
		check(fmt.Sprint("Resize ", n), err)
	}
	for _, d := range []time.Duration{-1, 1, time.Millisecond - 1, -time.Hour, math.MinInt64, math.MaxInt64 - 1} {
		for field, set := range map[string]func(*luagate.Semaphore){
			"Lease":     func(s *luagate.Semaphore) { s.Lease = d },
			"AtLeast":   func(s *luagate.Semaphore) { s.AtLeast = d },
			"HeadStart": func(s *luagate.Semaphore) { s.HeadStart = d },
		} {
			s := g.Semaphore("m", 1)
			set(s)
			acquire(fmt.Sprint(field, " ", d), ctx, s, 1)
		}
		_, err := luagate.New(rdb, luagate.WithCallTimeout(d))
		check(fmt.Sprint("WithCallTimeout ", d), err)
	}
	for _, n := range []int{-1, math.MinInt, math.MaxInt32 + 1} {
		s := g.Semaphore("m", 1)
		s.MaxWaiting = n
		acquire(fmt.Sprint("MaxWaiting ", n), ctx, s, 1)
	}
	for _, label := range []string{"a b", "a\n", strings.Repeat("a", 164)} {
		s := g.Semaphore("m", 1)
		s.Label = label
		acquire("Label", ctx, s, 1)
		_, err := luagate.New(rdb, luagate.WithLabel(label))
		check("WithLabel", err)
	}
	for _, prefix := range []string{"", " ", "{a}", "ü", strings.Repeat("a", 65)} {
		_, err := luagate.New(rdb, luagate.WithPrefix(prefix))
		check("WithPrefix", err)
	}
	for _, id := range []string{"", "a b", strings.Repeat("a", 201)} {
		_, err := g.Mutex("m").Revoke(ctx, id)
		check("Revoke", err)
	}
	acquire("nil context", nil, g.Mutex("m"), 1)
	_, err = g.Several().Acquire(ctx)
	check("Several of nothing", err)
	_, err = g.Several(luagate.Want{}).Acquire(ctx)
	check("Several of nil", err)
	_, err = luagate.New(nil)
	check("nil client", err)
	_, err = luagate.New((*redis.Client)(nil))
	check("nil *redis.Client", err)
	_, err = luagate.New(rdb, luagate.WithLogger((*slog.Logger)(nil)))
	check("nil logger", err)
	return []string{"checked", fmt.Sprint("total=", total), "wrong=" + strings.Join(wrong, ",")}, nil
}

// own is a client of a program that adds to the client of go-redis.
type own struct{ redis.UniversalClient }

// checkClients opens a gate on every kind of client of go-redis.
func checkClients(c command) ([]string, error) {
	address := c.of("url")
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	single := redis.NewClient(options)
	kinds := map[string]redis.UniversalClient{
		"Client":          single,
		"UniversalClient": redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{options.Addr}, Password: options.Password}),
		"WithTimeout":     single.WithTimeout(time.Second),
		"own":             own{single},
		"ClusterClient": redis.NewClusterClient(&redis.ClusterOptions{
			Username: options.Username, Password: options.Password,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { // all slots are on this server
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: options.Addr}}}}, nil
			},
		}),
		"Ring": redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": options.Addr}}),
	}
	var works, refused, wrong []string
	for kind, rdb := range kinds {
		err := tryClient(rdb, c)
		switch {
		case err == nil:
			works = append(works, kind)
		case errors.Is(err, luagate.ErrInvalid) && strings.Contains(err.Error(), "Accepted: a *redis.Client"):
			refused = append(refused, kind)
		default:
			wrong = append(wrong, fmt.Sprint(kind, ": ", err))
		}
	}
	for _, rdb := range kinds {
		rdb.Close()
	}
	list := func(key string, values []string) string { return key + "=" + strings.Join(values, ",") }
	return []string{"checked", list("works", works), list("refused", refused), list("wrong", wrong)}, nil
}

func tryClient(rdb redis.UniversalClient, c command) error {
	g, err := newGate(rdb, c)
	if err != nil {
		return err
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	mutex := g.Mutex("clients")
	permit, err := mutex.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	go permit.Release(ctx) // while the next caller waits
	permit, err = mutex.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	_, err = permit.Release(ctx)
	return err
}
