package luagate

import (
	"errors"
	"slices"
	"time"
)

// order is how long a call waits for a posted release of its name that may arrive later.
const order = time.Second

// posted is a release that was sent, and is not answered yet.
type posted struct {
	on       *connection // the calls behind it on this connection run after it; nil: it is sent again
	answered chan struct{}
}

// post sends the release of a permit, and does not wait for the reply. If the reply says that the permit was lost, this is reported.
// If there is no reply, the release is repeated in the background.
func (g *Gate) post(p *Permit) {
	s, l, script := p.semaphore, p.lease, g.scripts["semaphore/release"]
	wasHeld := l.finish()
	g.mu.Lock()
	if g.isClosed {
		g.mu.Unlock()
		g.logger.Warn("luagate: a release was not sent, because the gate is closed; the permit ends by itself", "semaphore", s.key(),
			"id", p.ID)
		return
	}
	one := &posted{answered: make(chan struct{})}
	g.posted[s.key()] = append(g.posted[s.key()], one)
	g.running.Add(1)
	g.mu.Unlock()

	var to *server
	call := newSent(nil)
	call.then = func(call *sent) {
		word, _, err := "", map[string]any(nil), call.err
		if err == nil {
			word, _, err = script.Read(call.value)
		}
		if to != nil {
			to.hasRelease.Store(err == nil)
		}
		if err == nil {
			if word == "gone" && wasHeld {
				l.announce()
			}
			if p.tries.mayRun() {
				g.releaseAgain(p)
			}
			g.endPosted(s.key(), one)
			return
		}
		g.mu.Lock()
		one.on = nil
		g.mu.Unlock()
		if answerOf(err) == "" {
			err = noReply(err)
		}
		g.logger.Warn("luagate: a release failed; it is repeated in the background", "semaphore", s.key(), "id", p.ID, "error", err)
		released := g.release(s, p.ID, p.tries.and(tries{open: []*sent{call}}))
		go func() {
			<-released
			g.endPosted(s.key(), one)
		}()
	}
	to, err := g.serverOf(bound{ctx: g.lasting}.within(order), s.key())
	if err != nil {
		call.end(nil, err)
		return
	}
	c := to.usable()
	if c == nil {
		call.end(nil, errors.New("no connection"))
		return
	}
	g.mu.Lock()
	one.on = c
	g.mu.Unlock()
	args := script.Args(map[string]any{"id": p.ID, "keep": 0})
	c.send(call, false, script.Command(!to.hasRelease.Load(), s.keys, args)...)
}

func (g *Gate) endPosted(key string, one *posted) {
	g.mu.Lock()
	left := slices.DeleteFunc(g.posted[key], func(other *posted) bool { return other == one })
	if g.posted[key] = left; len(left) == 0 {
		delete(g.posted, key)
	}
	g.mu.Unlock()
	close(one.answered)
	g.running.Done()
}

// awaitPosted waits for the releases of this name that are not ahead on this connection.
func (g *Gate) awaitPosted(b bound, key string, on *connection) {
	g.mu.Lock()
	var others []*posted
	for _, one := range g.posted[key] {
		if one.on != on {
			others = append(others, one)
		}
	}
	g.mu.Unlock()
	b = b.within(order)
	for _, one := range others {
		b.await(one.answered, order)
	}
}
