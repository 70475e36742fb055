package luagate

import (
	"errors"
	"fmt"
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

// tries are the attempts to run the calls of one id that were not answered in time, or with an error or a
// reply after which the call may have been run. The server may run them later.
type tries struct{ open []*sent }

func (t *tries) mayRun() bool { return len(t.open) > 0 }

// settle waits until the attempts are answered or their connections have ended. It reports whether one may
// still run.
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
	fields scripts.Fields
}

// showsUse is whether a release would change it: a denial, or the state that inspect returns, which has no
// word.
func (r reply) showsUse() bool { return r.word == "denied" || r.word == "" }

// n returns a number, or 0 if the reply has no such field.
func (r reply) n(field string) int64 {
	number, _ := r.fields.Get(field).(int64)
	return number
}

// rows returns a list of rows, or nil if the reply has no such field.
func (r reply) rows(field string) []any {
	rows, _ := r.fields.Get(field).([]any)
	return rows
}

// background runs f in a goroutine. Call it only before done of begin. f may continue for a second after
// Close.
func (g *Gate) background(f func(bound)) {
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		f(bound{ctx: g.lasting})
	}()
}

// scriptCall is a script with its arguments, in the order of the manifest: texts and integers.
type scriptCall struct {
	script *scripts.Script
	keys   []string
	args   []any
	fits   func(reply) bool // nil: this call can have all replies of the script
}

func (g *Gate) scriptCall(s *Semaphore, name string, args ...any) *scriptCall {
	return &scriptCall{script: g.scripts["semaphore/"+name], keys: s.keys, args: args}
}

// appendTo adds the command.
func (run *scriptCall) appendTo(out []byte, withText bool) []byte {
	command, script := run.script.Command(withText)
	out = appendLength(out, 3+len(run.keys)+len(run.args))
	out = appendText(appendText(out, command), script)
	out = appendNumber(out, int64(len(run.keys)))
	for _, key := range run.keys {
		out = appendText(out, key)
	}
	for _, arg := range run.args {
		out = appendWord(out, arg)
	}
	return out
}

func (run *scriptCall) read(value any) (reply, error) {
	word, fields, err := run.script.Read(value)
	answer := reply{word, fields}
	if err == nil && run.fits != nil && !run.fits(answer) {
		err = fmt.Errorf("%w: %s %v", ErrUnexpectedReply, word, fields)
	}
	return answer, err
}

// call runs a script of a semaphore, as repeat does.
func (g *Gate) call(b bound, s *Semaphore, of *tries, name string, args ...any) (reply, error) {
	return g.repeat(b, s.key(), of, g.scriptCall(s, name, args...))
}

// repeat runs a script, again and again with the same arguments, until the server has answered or b ends. If
// a release has failed meanwhile, it may have run after the call, or not yet: then an answer that shows what
// is in use counts for nothing, once.
func (g *Gate) repeat(b bound, place string, of *tries, run *scriptCall) (reply, error) {
	var last error
	delays, isAgain := g.delays.Load(), false
	for n := 1; b.cause() == nil; n++ {
		answered, err := g.attempt(b, of, run)
		if err == nil {
			g.isReached.Store(true)
			if answered.showsUse() && !isAgain && g.delays.Load() != delays && b.cause() == nil {
				isAgain = true
				continue
			}
			return answered, nil
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

// attempt runs a script once. If b ends, or the server does not answer in half the time of a call, it returns
// an error, and the server may still run it.
func (g *Gate) attempt(b bound, of *tries, run *scriptCall) (reply, error) {
	began := time.Now()
	to, err := g.serverOf(b, run.keys[0])
	if err != nil {
		return reply{}, err
	}
	withText, asking := false, false
	for range mostHops {
		c, err := to.connection(b)
		if err != nil {
			return reply{}, err
		}
		call := newSent(run)
		call.withText, call.asking = withText, asking
		g.sendBehind(c, call)
		err = c.wait(b, call, began, g.callTimeout/2)
		answer := answerOf(err)
		words := strings.Fields(answer)
		if mayHaveRun(err) {
			of.open = append(of.open, call)
		}
		switch {
		case err == nil:
			return call.answer, nil
		case answer == "":
			return reply{}, err
		case isNoScript(err):
			withText = true
		case g.cluster != nil && len(words) == 3 && (words[0] == "MOVED" || words[0] == "ASK"):
			asking = words[0] == "ASK"
			to = g.serverAt(to, words[2])
			g.cluster.ReloadState(b.ctx)
		default:
			return reply{}, err
		}
	}
	return reply{}, errNoReply
}
