package luagate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	shortestPause = 10 * time.Millisecond // between two attempts; it grows by itself
	longestPause  = 250 * time.Millisecond
	idleTime      = time.Second           // after its last attempt, a goroutine waits for the next one for this time
	lastCall      = 50 * time.Millisecond // how much longer than its deadline the last call of a wait may take
	lateness      = time.Second           // from the release of an id to a second one, if a call of it may reach the server late
	closing       = time.Second           // how long Close waits for the releases of waiters
)

// tries are the attempts to run the calls of one id.
type tries struct {
	running   sync.WaitGroup // attempts that wait for the server
	isUnknown bool           // an attempt was not answered: the server may run it later
}

// reply is the word of a reply, and its fields by their names in the manifest.
type reply struct {
	word   string
	fields map[string]any
}

// n returns a number, or 0 if the reply has no such field.
func (r reply) n(field string) int64 {
	number, _ := r.fields[field].(int64)
	return number
}

// background runs f in a goroutine. Call it only before done of begin. f may continue for a second after Close.
func (g *Gate) background(f func(bound)) {
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		f(bound{ctx: g.lasting})
	}()
}

// call runs a script of a semaphore with arguments by name, as repeat does.
func (g *Gate) call(b bound, s *Semaphore, name string, arguments map[string]any, of *tries) (reply, error) {
	script := g.scripts["semaphore/"+name]
	return g.repeat(b, s.key(), of, func(ctx context.Context) (word string, fields map[string]any, err error) {
		return script.CallNamed(ctx, g.rdb, s.keys, arguments)
	})
}

type script func(context.Context) (word string, fields map[string]any, err error)

// repeat runs a script, again and again with the same arguments, until the server has answered or b ends. The caller never waits
// for a socket or a pool.
func (g *Gate) repeat(b bound, place string, of *tries, run script) (reply, error) {
	var last error
	for n := 1; b.cause() == nil; n++ {
		answered, err := g.attempt(b, of, run)
		if err == nil {
			g.isReached.Store(true)
			return answered, nil
		}
		if b.cause() != nil {
			break
		}
		answer := answerOf(err)
		if answer != "" {
			g.isReached.Store(true)
			if err := g.permission(place, answer, err); err != nil {
				return reply{}, err
			}
		}
		switch {
		case errors.Is(err, ErrUnexpectedReply):
			return reply{}, fmt.Errorf("luagate: %s: %w", place, err)
		case errors.Is(err, redis.ErrClosed):
			return reply{}, fmt.Errorf("luagate: %s: %w: %w", place, ErrClosed, err)
		case isReadOnly(answer): // the address leads to another server now; go-redis closes the connection of the call
			g.loseInboxes()
		case answer != "" && !isPassing(answer):
			return reply{}, fmt.Errorf("luagate: %s: %w", place, err)
		case isRefused(err) && !g.isReached.Load():
			return reply{}, unreachable(place, err)
		case answer == "" && g.cluster != nil: // another node may be the master now
			g.cluster.ReloadState(b.ctx)
		}
		last = noReply(err)
		b.sleep(min(time.Duration(n)*shortestPause, longestPause))
	}
	return reply{}, b.ended(place, last)
}

// attempt runs a script once. If b ends, or the server does not answer in half the time of a call, it returns an error, and the
// attempt may still be running.
func (g *Gate) attempt(b bound, of *tries, run script) (reply, error) {
	type result struct {
		reply
		err error
	}
	results := make(chan result, 1)
	limited, cancel := context.WithDeadline(context.WithoutCancel(b.ctx), b.within(g.callTimeout/2).until)
	of.running.Add(1)
	g.work(func() {
		defer of.running.Done()
		defer cancel()
		word, fields, err := run(limited)
		if answer := answerOf(err); isReadOnly(answer) && !strings.HasPrefix(answer, "READONLY ") {
			g.rdb.Do(limited, "QUIT") // older versions of go-redis do not know this text of Redis 6, and keep the connection
		}
		results <- result{reply{word, fields}, err}
	})
	var got result
	select {
	case got = <-results:
	case <-b.ctx.Done():
		got.err = b.ctx.Err()
	case <-b.over:
		got.err = ErrClosed
	case <-limited.Done():
		select {
		case got = <-results: // cancel came after it
		default:
			got.err = errNoReply
		}
	}
	if got.err != nil && answerOf(got.err) == "" && !isRefused(got.err) {
		of.isUnknown = true
	}
	return got.reply, got.err
}

// work runs f in another goroutine: in one that is idle if there is one, because a new one first has to grow its stack.
func (g *Gate) work(f func()) {
	select {
	case g.idle <- f:
	default:
		go func() {
			for {
				f()
				select {
				case f = <-g.idle:
				case <-time.After(idleTime):
					return
				}
			}
		}()
	}
}

// release sends a release of the id in the background. It is repeated until the server has answered, or until everything that the
// id may hold has ended. Then the returned channel is closed. If a call of the id may come late, the id is released again later.
func (g *Gate) release(s *Semaphore, id string, of *tries) <-chan struct{} {
	released := make(chan struct{})
	g.background(func(b bound) {
		if s.Lease != Permanent {
			b = b.within(max(patience, s.firstLease(), s.AtLeast))
		}
		of.running.Wait() // the server would run it after the release
		isReleased := g.releaseOnce(b, s, id)
		close(released)
		if isReleased && of.isUnknown {
			bound{ctx: b.ctx, over: g.over}.sleep(lateness)
			g.releaseOnce(b, s, id)
		}
	})
	return released
}

// releaseOnce repeats a release after every error: what the server refuses now may stay held for long.
func (g *Gate) releaseOnce(b bound, s *Semaphore, id string) bool {
	var err error
	for {
		_, err = g.call(b, s, "release", map[string]any{"id": id, "keep": 0}, new(tries))
		if err == nil || b.cause() != nil || errors.Is(err, ErrClosed) {
			break
		}
		b.sleep(longestPause)
	}
	if err != nil {
		g.logger.Warn("luagate: a release failed; the permit or the place in line ends by itself", "semaphore", s.key(), "id", id,
			"error", err)
	}
	return err == nil
}
