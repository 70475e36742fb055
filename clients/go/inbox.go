package luagate

import (
	"context"
	"crypto/sha1"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	opening  = time.Second            // how long a waiter waits for the subscription, before it asks without one
	pongTime = 900 * time.Millisecond // a subscription is dead if its PING is not answered in this time
	again    = time.Second            // the pause after a failed subscription
	absence  = 30 * time.Second       // the same if the server has no Pub/Sub
)

// A message grants permits until at. With the fence 0 it is a hint: it grants nothing, and asks the waiter to
// call again at that time.
type message struct {
	permits        int
	fence, at, now int64
	received       time.Duration // an instant of clock
}

// The text of a message: the signed part, which begins with the id, and the signature.
var signed = regexp.MustCompile(`^((\S+) \d+ \d+ (?:\d+|-1) \d+) ([0-9a-f]{40})$`)

// inbox is the channel on which one server sends messages to the waiters of a gate.
type inbox struct {
	server  *server
	client  *redis.Client // of the gate, for the subscription alone
	channel string

	mu      sync.Mutex // guards the fields below; nobody holds it during a call
	current *subscription
	opening chan struct{} // closed when the attempt to subscribe has ended; nil: none runs
	next    time.Time     // no attempt before
	refusal error         // of the server's ACL
	isOld   bool          // it had a subscription before
}

// subscription is one connection that receives messages.
type subscription struct {
	pubsub  *redis.PubSub
	pinged  bool      // no answer yet; guarded by inbox.mu
	isHeard time.Time // the last answer
}

// open returns the channel if messages arrive on it. Otherwise it is empty, and the caller can only ask
// again.
func (i *inbox) open(b bound) (string, error) {
	i.mu.Lock()
	if i.current == nil && i.opening == nil && time.Now().After(i.next) {
		i.opening = make(chan struct{})
		i.server.gate.background(i.subscribe)
	}
	attempt := i.opening
	i.mu.Unlock()
	if attempt != nil {
		select {
		case <-attempt:
		case <-time.After(opening):
		case <-b.ctx.Done():
		case <-b.over:
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return "", i.refusal
	}
	return i.channel, nil
}

func (i *inbox) subscribe(b bound) {
	opened, err := i.attempt(b.ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if opened != nil && i.server.gate.lasting.Err() != nil {
		go opened.pubsub.Close()
		opened = nil
	}
	answer := answerOf(err)
	i.current, i.next, i.refusal = opened, time.Now().Add(again), i.server.gate.explained(i.channel, answer, err)
	if opened == nil && i.refusal == nil && (err == nil || answer != "" && !isPassing(answer)) {
		i.next = time.Now().Add(absence)
	}
	if opened != nil && i.isOld {
		i.server.gate.counts.reconnects.Add(1)
	}
	i.isOld = i.isOld || opened != nil
	close(i.opening)
	i.opening = nil
	if opened != nil {
		go i.receive(opened)
	}
}

// attempt subscribes within half the time of a call.
func (i *inbox) attempt(ctx context.Context) (*subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, i.server.gate.callTimeout/2)
	defer cancel()
	type result struct {
		opened *subscription
		err    error
	}
	results := make(chan result, 1)
	go func() {
		opened, err := i.connect(ctx)
		results <- result{opened, err}
	}()
	select {
	case got := <-results:
		return got.opened, got.err
	case <-ctx.Done(): // without a ReadTimeout go-redis may wait for ever
		go func() {
			if got := <-results; got.opened != nil {
				got.opened.pubsub.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// connect subscribes. It returns nil if a proxy keeps messages away. It also tries the two commands that the
// scripts use: they ignore an error of the ACL.
func (i *inbox) connect(ctx context.Context) (*subscription, error) {
	pubsub := i.client.Subscribe(ctx, i.channel)
	_, err := pubsub.ReceiveTimeout(ctx, i.server.gate.callTimeout/2)
	b := bound{ctx: ctx}
	if err == nil {
		_, err = i.server.run(b, "PUBLISH", i.channel, "")
	}
	var listeners any
	if err == nil {
		listeners, err = i.server.run(b, "PUBSUB", "NUMSUB", i.channel)
	}
	if list, _ := listeners.([]any); len(list) == 2 && list[1] != int64(0) {
		return &subscription{pubsub: pubsub, isHeard: time.Now()}, nil
	}
	go pubsub.Close()
	return nil, err
}

// verify sends a PING on the subscription. If it is not answered, the subscription is lost.
func (i *inbox) verify() {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.current
	if s == nil || s.pinged || time.Since(s.isHeard) < pongTime {
		return
	}
	s.pinged = true
	go s.pubsub.Ping(context.Background())
	time.AfterFunc(pongTime, func() {
		i.mu.Lock()
		isDead := s.pinged
		i.mu.Unlock()
		if isDead {
			i.lose(s)
		}
	})
}

// lose ends this subscription (nil: the current one). All waiters ask again, and the first one subscribes
// again.
func (i *inbox) lose(s *subscription) {
	i.mu.Lock()
	current := i.current
	if current == nil || s != nil && s != current {
		i.mu.Unlock()
		return
	}
	i.current, i.next = nil, time.Time{}
	i.mu.Unlock()
	go current.pubsub.Close() // it may wait for a connection
	now := message{at: math.MaxInt64, now: math.MaxInt64, received: clock()}
	i.server.gate.waiting.Range(func(_, r any) bool {
		r.(*request).deliver(now)
		return true
	})
}

// receive passes each message to its waiter if the signature is valid: only the server knows the waiter's
// secret.
func (i *inbox) receive(s *subscription) {
	defer i.lose(s)
	for {
		event, err := s.pubsub.Receive(context.Background())
		if err != nil && answerOf(err) == "" {
			return
		}
		received := clock()
		m, isMessage := event.(*redis.Message)
		if !isMessage { // the answer to a PING
			i.mu.Lock()
			s.pinged, s.isHeard = false, time.Now()
			i.mu.Unlock()
			continue
		}
		parts := signed.FindStringSubmatch(m.Payload)
		if parts == nil {
			continue
		}
		grant := message{received: received}
		fmt.Sscan(strings.TrimPrefix(parts[1], parts[2]), &grant.permits, &grant.fence, &grant.at, &grant.now)
		r, waits := i.server.gate.waiting.Load(parts[2])
		if waits && parts[3] == fmt.Sprintf("%x", sha1.Sum([]byte(r.(*request).secret+parts[1]))) {
			r.(*request).deliver(grant)
		}
	}
}
