package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

func (d *driver) open(c command) ([]string, error) {
	options, err := redis.ParseURL(c.of("url"))
	if err != nil {
		return nil, err
	}
	if c.of("client") == "busy" {
		options.PoolSize = 2
	}
	rdb := newClient(options, c) // the README recommends no other settings
	for n := uint32(1); c.of("client") == "busy" && n <= 2; n++ {
		go rdb.BLPop(context.Background(), 0, "nothing")
		for rdb.PoolStats().TotalConns < n {
			time.Sleep(time.Millisecond)
		}
	}
	g, err := newGate(rdb, c)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gates[c.of("gate")] = &gate{g, rdb, c}
	return []string{"done"}, nil
}

// newClient returns the client of go-redis for one server, a cluster or sentinels.
func newClient(options *redis.Options, c command) redis.UniversalClient {
	addresses := []string{options.Addr}
	switch {
	case c.of("cluster") == "1":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	case c.of("sentinel") != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: c.of("sentinel"), SentinelAddrs: addresses})
	}
	return redis.NewClient(options)
}

func newGate(rdb redis.UniversalClient, c command) (*luagate.Gate, error) {
	if c.of("prefix") == "" {
		return luagate.New(rdb)
	}
	return luagate.New(rdb, luagate.WithPrefix(c.of("prefix")))
}

// deadline returns the context of a call with the key timeout.
func deadline(ctx context.Context, c command) (context.Context, context.CancelFunc) {
	if c.of("timeout") == "" {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.duration("timeout"))
}

func (d *driver) acquire(ctx context.Context, c command) ([]string, error) {
	ctx, cancel := deadline(ctx, c)
	defer cancel()
	g := d.gate(c)
	wants := c.all(g.Gate)
	if len(wants) != 1 || c.of("several") == "1" {
		acquire := g.Several(wants...).Acquire
		if c.verb == "try" {
			acquire = g.Several(wants...).TryAcquire
		}
		permits, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		d.keep(c, held{permits: permits})
		return granted(permits.Each...), nil
	}
	acquire := wants[0].Semaphore.Acquire
	if c.verb == "try" {
		acquire = wants[0].Semaphore.TryAcquire
	}
	permit, err := acquire(ctx, wants[0].Permits)
	if err != nil {
		return nil, err
	}
	d.keep(c, held{permit: permit})
	return granted(permit), nil
}

func granted(permits ...*luagate.Permit) []string {
	var fences, numbers, limits []string
	for _, p := range permits {
		fences = append(fences, fmt.Sprint(p.Fence))
		numbers = append(numbers, fmt.Sprint(p.Permits))
		limits = append(limits, fmt.Sprint(p.Limit))
	}
	list := func(key string, values []string) string { return key + "=" + strings.Join(values, ",") }
	return []string{"granted", "id=" + permits[0].ID, list("fence", fences), list("permits", numbers), list("limit", limits)}
}

var errWork = errors.New("the work failed")

func (d *driver) use(ctx context.Context, c command) ([]string, error) {
	limited, cancel := deadline(ctx, c)
	defer cancel()
	work := func(context.Context) error {
		d.say("!", "working", c.name)
		select {
		case <-time.After(c.duration("hold")):
		case <-ctx.Done():
		}
		if c.of("work") == "error" {
			return errWork
		}
		return nil
	}
	g := d.gate(c)
	wants := c.all(g.Gate)
	if c.of("report") == "1" {
		wants[0].Semaphore.OnLost = func(string) { d.say("!", "lost", c.name) }
	}
	several := g.Several(wants...)
	one := func(ctx context.Context, _ *luagate.Permit) error { return work(ctx) }
	all := func(ctx context.Context, _ *luagate.Permits) error { return work(ctx) }
	var err error
	switch isChecked := c.of("check") == "1"; {
	case len(wants) > 1 && isChecked:
		err = several.DoChecked(limited, all)
	case len(wants) > 1:
		err = several.Do(limited, all)
	case isChecked:
		err = wants[0].Semaphore.DoChecked(limited, wants[0].Permits, one)
	default:
		err = wants[0].Semaphore.Do(limited, wants[0].Permits, one)
	}
	switch err {
	case nil:
		return []string{"returned", "value=work"}, nil
	case errWork:
		return []string{"raised"}, nil
	}
	return nil, err
}

// permit has the common methods of Permit and Permits.
type permit interface {
	IsLost() bool
	Lost() <-chan struct{}
	Remaining() time.Duration
	Refresh(ctx context.Context) error
	Release(ctx context.Context) (bool, error)
}

func (d *driver) withPermit(ctx context.Context, c command) ([]string, error) {
	d.mu.Lock()
	h := d.permits[c.of("permit")]
	d.mu.Unlock()
	var p permit = h.permit
	if h.permits != nil {
		p = h.permits
	}
	switch c.verb {
	case "refresh":
		return []string{"refreshed"}, p.Refresh(ctx)
	case "release":
		wasHeld, err := p.Release(ctx)
		return []string{"released", fmt.Sprint("held=", wasHeld)}, err
	case "await_lost":
		select {
		case <-p.Lost():
			return []string{"lost"}, nil
		case <-time.After(c.duration("timeout")):
			return []string{"held"}, nil
		}
	}
	switch left := p.Remaining(); left {
	case 0:
		return []string{"lost"}, nil
	case luagate.Permanent:
		return []string{"held", "remaining=never"}, nil
	default:
		return []string{"held", fmt.Sprint("remaining=", left.Milliseconds())}, nil
	}
}

func (d *driver) withSemaphore(ctx context.Context, c command) ([]string, error) {
	s := semaphore(d.gate(c).Gate, c.wants[0])
	switch c.verb {
	case "revoke":
		found, err := s.Revoke(ctx, c.of("id"))
		if found {
			return []string{"revoked"}, err
		}
		return []string{"gone"}, err
	case "resize":
		resized, err := s.Resize(ctx, number(c.of("to")))
		if err != nil {
			return nil, err
		}
		return []string{"resized", fmt.Sprint("old=", resized.Old), fmt.Sprint("new=", resized.New)}, nil
	}
	state, err := s.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	var holders, labels, waiters []string
	for _, holder := range state.Holders {
		holders, labels = append(holders, holder.ID), append(labels, holder.Label)
	}
	for _, waiter := range state.Waiters {
		waiters = append(waiters, waiter.ID)
	}
	return []string{"state", fmt.Sprint("limit=", state.Limit), fmt.Sprint("in_use=", state.InUse),
		fmt.Sprint("waiting=", state.WaiterCount), "holders=" + strings.Join(holders, ","), "waiters=" + strings.Join(waiters, ","),
		"labels=" + strings.Join(labels, ",")}, nil
}

func counters(c luagate.Counters) []string {
	count := func(name string, n uint64) string { return fmt.Sprint(name, "=", n) }
	return []string{"counters", count("waited", c.Waited), count("line_full", c.LineFull), count("granted", c.Granted),
		count("denied", c.Denied), count("lost", c.Lost), count("renewed", c.Renewed), count("reconnects", c.Reconnects)}
}
