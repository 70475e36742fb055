package luagate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate/scripts"
)

const (
	shortestPause = 10 * time.Millisecond // between two attempts; it grows by itself
	longestPause  = 250 * time.Millisecond
	lastCall      = 50 * time.Millisecond // how much longer than its deadline the last call of a wait may take
	lateness      = time.Second           // from the release of an id to a second one, if a call of it may reach the server late
	closing       = time.Second           // how long Close waits for the releases of waiters
	mostHops      = 5                     // from one node of a cluster to the next, in one attempt
)

// tries are the attempts to run the calls of one id that were not answered in time, or with an error or a reply after which the call
// may have been run. The server may run them later.
type tries struct{ open []*sent }

func (t *tries) mayRun() bool { return len(t.open) > 0 }

// and returns the attempts of both.
func (t *tries) and(others tries) *tries { return &tries{slices.Concat(t.open, others.open)} }

// settle waits until the attempts are answered or their connections have ended. It reports whether one may still run.
func (t *tries) settle(b bound, longest time.Duration) bool {
	mayRun := false
	b = b.within(longest)
	for _, one := range t.open {
		b.await(one.done, longest)
		select {
		case <-one.done:
			mayRun = mayRun || mayHaveRun(one.err)
		default:
			mayRun = true
		}
	}
	return mayRun
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

// scriptCall is a script with its arguments.
type scriptCall struct {
	script *scripts.Script
	keys   []string
	args   []any
}

// call runs a script of a semaphore with arguments by name, as repeat does.
func (g *Gate) call(b bound, s *Semaphore, name string, arguments map[string]any, of *tries) (reply, error) {
	script := g.scripts["semaphore/"+name]
	return g.repeat(b, s.key(), of, scriptCall{script, s.keys, script.Args(arguments)})
}

// repeat runs a script, again and again with the same arguments, until the server has answered or b ends.
func (g *Gate) repeat(b bound, place string, of *tries, run scriptCall) (reply, error) {
	var last error
	for n := 1; b.cause() == nil; n++ {
		answered, err := g.attempt(b, of, run)
		if err == nil {
			g.isReached.Store(true)
			word, fields, err := run.script.Read(answered)
			if err != nil {
				unknown := newSent(nil)
				unknown.end(nil, err)
				of.open = append(of.open, unknown)
				return reply{}, fmt.Errorf("luagate: %s: %w", place, err)
			}
			return reply{word, fields}, nil
		}
		if b.cause() != nil {
			break
		}
		answer := answerOf(err)
		if answer != "" {
			g.isReached.Store(true)
			if err := g.explained(place, answer, err); err != nil {
				return reply{}, err
			}
		}
		switch {
		case errors.Is(err, ErrUnexpectedReply):
			return reply{}, fmt.Errorf("luagate: %s: %w", place, err)
		case errors.Is(err, redis.ErrClosed):
			return reply{}, fmt.Errorf("luagate: %s: %w: %w", place, ErrClosed, err)
		case isReadOnly(answer): // the address leads to another server now
			for _, one := range g.all() {
				one.renew()
			}
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
// server may still run it.
func (g *Gate) attempt(b bound, of *tries, run scriptCall) (any, error) {
	began := time.Now()
	to, err := g.serverOf(b, run.keys[0])
	if err != nil {
		return nil, err
	}
	withText, asking := false, false
	for range mostHops {
		c, err := to.connection(b)
		if err != nil {
			return nil, err
		}
		if run.script != g.scripts["semaphore/release"] {
			g.awaitPosted(b, run.keys[0], c)
		}
		call := newSent(nil)
		c.send(call, asking, run.script.Command(withText, run.keys, run.args)...)
		answered, err := c.wait(b, call, began, g.callTimeout/2)
		answer := answerOf(err)
		words := strings.Fields(answer)
		if mayHaveRun(err) {
			of.open = append(of.open, call)
		}
		switch {
		case err != nil && answer == "":
			return nil, err
		case strings.HasPrefix(answer, "NOSCRIPT "):
			withText = true
		case g.cluster != nil && len(words) == 3 && (words[0] == "MOVED" || words[0] == "ASK"):
			asking = words[0] == "ASK"
			to = g.serverAt(to, words[2])
			g.cluster.ReloadState(b.ctx)
		default:
			return answered, err
		}
	}
	return nil, errNoReply
}

// release sends a release of the id in the background. It is repeated until the server has answered, or until everything that the
// id may hold has ended. Then the returned channel is closed. If a call of the id may come late, the id is released again later.
func (g *Gate) release(s *Semaphore, id string, of *tries) <-chan struct{} {
	released := make(chan struct{})
	g.background(func(b bound) {
		if s.Lease != Permanent {
			b = b.within(max(patience, s.firstLease(), s.AtLeast))
		}
		mayRun := of.settle(b, g.callTimeout/2) // the server would run it after the release
		isReleased := g.releaseOnce(b, s, id)
		close(released)
		if isReleased && mayRun {
			bound{ctx: b.ctx, over: g.over}.sleep(lateness)
			g.releaseOnce(b, s, id)
		}
	})
	return released
}

// releaseAgain releases in the background what a late attempt to acquire may have acquired: it may reach the server until its
// connection has ended, and a moment longer.
func (g *Gate) releaseAgain(p *Permit) {
	b, done := g.begin(g.lasting, 0)
	defer done()
	if b.cause() != nil {
		return
	}
	g.background(func(b bound) {
		whileOpen := bound{ctx: b.ctx, over: g.over}
		p.tries.settle(whileOpen, g.callTimeout/2)
		whileOpen.sleep(lateness)
		g.releaseOnce(b, p.semaphore, p.ID)
	})
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
