package luagate

import (
	"errors"
	"slices"
	"strings"
)

// release is a release of all that an id has, until the server has confirmed it. A call of its name that is
// sent meanwhile runs after it: it is ahead on the same connection, or it is sent there once more, in the
// packet of the call. Since an id is used once, it does no harm that a release runs twice.
type release struct {
	semaphore *Semaphore
	id        string
	lease     *lease // of a permit that was held until then; nil: nobody is told that it was lost
	tries     *tries // of the calls that acquired: some may reach the server after the release
	done      chan struct{}

	// Guarded by Gate.mu.
	on       *connection // the last one to which it was sent, and which has not refused it; nil: none
	copies   int         // that were sent with other calls. Of two, the second one finds nothing
	isDriven bool        // it is repeated in the background
}

func newRelease(s *Semaphore, id string, of *tries) *release {
	return &release{semaphore: s, id: id, tries: of, done: make(chan struct{})}
}

// call returns the call, to be sent on this connection. mu is held.
func (r *release) call(c *connection, asking bool) *sent {
	r.on = c
	r.copies++
	return r.attempt(c, asking, false)
}

// attempt is one attempt of the call. The text of the script is sent if the server does not have the script.
func (r *release) attempt(c *connection, asking, withText bool) *sent {
	g := r.semaphore.gate
	call := newSent(g.scriptCall(r.semaphore, "release", r.id, 0))
	call.withText, call.asking = withText, asking
	call.then = func(call *sent) {
		switch {
		case call.err == nil:
			g.confirm(r, call.answer)
		case !withText && isNoScript(call.err):
			c.send(r.attempt(c, asking, true))
			g.delays.Add(1) // the calls behind the first attempt have overtaken it
		default:
			g.failed(r, c, call.err)
		}
	}
	return call
}

func isNoScript(err error) bool { return strings.HasPrefix(answerOf(err), "NOSCRIPT ") }

// post sends the release of a permit, and does not wait for the reply. If the reply says that the permit was
// lost, this is reported. If there is no reply, the release is repeated in the background.
func (g *Gate) post(p *Permit) {
	s, r := p.semaphore, newRelease(p.semaphore, p.ID, &p.tries)
	if p.lease.finish() {
		r.lease = p.lease
	}
	var c *connection
	to, err := g.serverOf(bound{ctx: g.lasting}, s.key())
	if err == nil {
		c = to.usable()
	}
	if c == nil && err == nil {
		err = errors.New("no connection")
	}
	g.mu.Lock()
	if g.isClosed {
		g.mu.Unlock()
		g.log.warn("luagate: a release was not sent, because the gate is closed; the permit ends by itself", "semaphore", s.key(), "id", p.ID)
		return
	}
	g.add(r)
	if c == nil {
		g.mu.Unlock()
		g.failed(r, nil, err)
		return
	}
	calls := []*sent{r.call(c, false)}
	err = c.put(calls)
	g.mu.Unlock()
	c.flush(calls, err)
}

// sendBehind sends a call behind the releases of its names: those that are not ahead on this connection go
// with it.
func (g *Gate) sendBehind(c *connection, call *sent) {
	var calls []*sent
	g.mu.Lock()
	if call.run.script != g.scripts["semaphore/release"] && len(g.releases) > 0 {
		for i := 0; i < len(call.run.keys); i += 3 { // three for each semaphore
			for _, r := range g.releases[call.run.keys[i]] {
				if r.on != c {
					calls = append(calls, r.call(c, call.asking))
				}
			}
		}
	}
	calls = append(calls, call)
	err := c.put(calls)
	g.mu.Unlock()
	c.flush(calls, err)
}

// add notes a release. mu is held.
func (g *Gate) add(r *release) {
	key := r.semaphore.key()
	g.releases[key] = append(g.releases[key], r)
	g.running.Add(1)
}

// remove ends a release. It reports whether it had not ended before, and whether it was sent once.
func (g *Gate) remove(r *release) (isFirst, isOnly bool) {
	key := r.semaphore.key()
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.releases[key]
	i := slices.Index(all, r)
	if i < 0 {
		return false, false
	}
	if len(all) == 1 {
		delete(g.releases, key)
	} else {
		g.releases[key] = slices.Delete(all, i, i+1)
	}
	return true, r.copies == 1 && !r.isDriven
}

// confirm ends a release with this answer of the server.
func (g *Gate) confirm(r *release, answer reply) {
	isFirst, isOnly := g.remove(r)
	if !isFirst {
		return
	}
	if answer.word == "gone" && isOnly && r.lease != nil {
		r.lease.announce()
	}
	if r.tries.mayRun() {
		g.releaseAgain(r.semaphore, r.id, r.tries)
	}
	close(r.done)
	g.running.Done()
}

// failed repeats a release in the background, since this connection (nil: none) has not confirmed it.
func (g *Gate) failed(r *release, c *connection, err error) {
	g.mu.Lock()
	if r.on == c {
		r.on = nil
	}
	begins := !r.isDriven && slices.Contains(g.releases[r.semaphore.key()], r)
	if begins {
		r.isDriven = true
		g.background(func(b bound) { g.drive(b, r) })
	}
	g.mu.Unlock()
	g.delays.Add(1) // after the change: a call that did not see the change sees this when it is answered
	if begins {
		if answerOf(err) == "" {
			err = noReply(err)
		}
		g.log.warn("luagate: a release failed; it is repeated in the background", "semaphore", r.semaphore.key(), "id", r.id, "error", err)
	}
}

// release releases what the id may hold, in the background, until the server has answered, or until
// everything that the id may hold has ended. Then the returned channel is closed. If a call of the id may
// come late, the id is released again later. Call it only before done of begin.
func (g *Gate) release(s *Semaphore, id string, of *tries) <-chan struct{} {
	r := newRelease(s, id, of)
	r.isDriven = true
	g.mu.Lock()
	g.add(r)
	g.mu.Unlock()
	g.background(func(b bound) { g.drive(b, r) })
	return r.done
}

// releaseLost is the same for a call that was not granted: the attempts that are not answered are waited for,
// since the server would run them after the release. Other calls do not wait for this.
func (g *Gate) releaseLost(s *Semaphore, id string, of *tries) <-chan struct{} {
	if !of.mayRun() {
		return g.release(s, id, of)
	}
	released := make(chan struct{})
	g.background(func(b bound) {
		if !of.settle(b, g.callTimeout/2) {
			of = new(tries)
		}
		<-g.release(s, id, of)
		close(released)
	})
	return released
}

// releaseAgain releases in the background what a late attempt to acquire may have acquired: it may reach the
// server until its connection has ended, and a moment longer.
func (g *Gate) releaseAgain(s *Semaphore, id string, of *tries) {
	g.background(func(b bound) {
		whileOpen := bound{ctx: b.ctx, over: g.closing.Done()}
		of.settle(whileOpen, g.callTimeout/2)
		whileOpen.sleep(lateness)
		if b.cause() == nil {
			g.release(s, id, new(tries))
		}
	})
}

// drive repeats a release after every error: what the server refuses now may stay held for long.
func (g *Gate) drive(b bound, r *release) {
	s := r.semaphore
	if s.Lease != Permanent {
		b = b.within(max(patience, s.firstLease(), s.AtLeast))
	}
	b.over = r.done // a call has sent it ahead of itself
	for {
		answer, err := g.call(b, s, new(tries), "release", r.id, 0)
		if err == nil {
			g.confirm(r, answer)
			return
		}
		if b.cause() != nil || errors.Is(err, ErrClosed) {
			if isFirst, _ := g.remove(r); isFirst {
				g.log.warn("luagate: a release failed; the permit or the place in line ends by itself", "semaphore", s.key(), "id", r.id,
					"error", err)
				close(r.done)
				g.running.Done()
			}
			return
		}
		b.sleep(longestPause)
	}
}
