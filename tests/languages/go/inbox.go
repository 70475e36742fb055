package luagate

import (
	"context"
	"crypto/sha1"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// A message grants permits until at. With the fence 0 it grants nothing, and says to ask again at that time.
type message struct {
	permits        int
	fence, at, now int64
	received       time.Time
}

// The text of a message: what is signed, which begins with the id, and the signature.
var signed = regexp.MustCompile(`^((\S+) \d+ \d+ (?:\d+|-1) \d+) ([0-9a-f]{40})$`)

// listen opens the inbox once. It is empty where a proxy keeps messages away, and who waits can only ask again.
func (c *Client) listen(ctx context.Context) (string, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub != nil {
		return c.inbox, nil
	}
	inbox := c.prefix + ":inbox:" + newID()
	pubsub := c.rdb.Subscribe(ctx, inbox)
	_, err := pubsub.ReceiveTimeout(ctx, c.rdb.Options().ReadTimeout)
	if err == nil { // tried here, since the scripts pass over in silence what an ACL forbids
		err = c.rdb.Publish(ctx, inbox, "hello").Err()
	}
	var listeners map[string]int64
	if err == nil {
		listeners, err = c.rdb.PubSubNumSub(ctx, inbox).Result()
	}
	if err != nil {
		pubsub.Close()
		return "", err
	}
	c.pubsub = pubsub
	if listeners[inbox] > 0 {
		c.inbox = inbox
		go c.hear(pubsub.ChannelWithSubscriptions())
	}
	return c.inbox, nil
}

// hear hands each message to the one who waits for it, if it is signed with that secret.
func (c *Client) hear(events <-chan any) {
	for event := range events {
		m := message{received: time.Now()}
		switch event := event.(type) {
		case *redis.Subscription: // it stands again, and messages were lost: a hint to all to ask now
			m.at, m.now = math.MaxInt64, math.MaxInt64
			c.waiting.Range(func(_, p any) bool { return p.(*Permit).tell(m) })
		case *redis.Message:
			parts := signed.FindStringSubmatch(event.Payload)
			if parts == nil {
				continue
			}
			fmt.Sscan(parts[1], new(string), &m.permits, &m.fence, &m.at, &m.now)
			p, waits := c.waiting.Load(parts[2])
			if waits && parts[3] == fmt.Sprintf("%x", sha1.Sum([]byte(p.(*Permit).secret+parts[1]))) {
				p.(*Permit).tell(m)
			}
		}
	}
}

// tell drops a message when too many are unread, as asking again brings the same.
func (p *Permit) tell(m message) bool {
	select {
	case p.messages <- m:
	default:
	}
	return true
}

// sleep returns when it is time to ask again or ctx is done. It says whether a message has granted the permit.
func (p *Permit) sleep(ctx context.Context, last reply) bool {
	pause := min(5*time.Second, millis(last["retry_after"]))
	if ahead := last["position"] - 1; ahead > 0 {
		pause = min(pause, time.Duration(ahead)*time.Second)
	}
	wake := time.Now().Add(pause)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Until(wake)):
			return false
		case m := <-p.messages:
			switch {
			case m.now < last["now"]: // old news
			case m.fence == 0 && m.at == -1:
				p.revoked = true
				return false
			case m.fence == 0:
				if at := m.received.Add(millis(m.at - m.now)); at.Before(wake) {
					wake = at
				}
			case m.fence > p.Ticket && m.permits == p.Permits:
				granted := newLease(p.asked, m.at, last["now"])
				if heard := newLease(m.received, m.at, m.now); heard.end.Before(granted.end) {
					granted = heard
				}
				p.Fence = m.fence
				p.lease.Store(granted)
				return true
			}
		}
	}
}
