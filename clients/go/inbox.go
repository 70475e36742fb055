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

// A message grants permits until at. With the fence 0 it is a hint: it grants nothing, and asks the waiter to call again at that
// time.
type message struct {
	permits        int
	fence, at, now int64
	received       time.Time
}

// The text of a message: the signed part, which begins with the id, and the signature.
var signed = regexp.MustCompile(`^((\S+) \d+ \d+ (?:\d+|-1) \d+) ([0-9a-f]{40})$`)

// listen opens the inbox with the first wait, and returns its channel. If a proxy keeps messages away, the channel is empty, and
// waiters only ask again from time to time.
func (c *Client) listen(ctx context.Context) (string, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.pubsub != nil {
		return c.inbox, nil
	}
	inbox := c.prefix + ":inbox:" + newID()
	pubsub := c.rdb.Subscribe(ctx, inbox)
	_, err := pubsub.ReceiveTimeout(ctx, c.rdb.Options().ReadTimeout)
	if err == nil { // if an ACL forbids it, only this call reports it: the scripts ignore the error
		err = c.rdb.Publish(ctx, inbox, "").Err()
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
		go c.receive(pubsub.ChannelWithSubscriptions())
	}
	return c.inbox, nil
}

// receive passes each message to its waiter if the signature is valid: only the server knows the waiter's secret.
func (c *Client) receive(events <-chan any) {
	for event := range events {
		m := message{received: time.Now()}
		switch event := event.(type) {
		case *redis.Subscription: // subscribed again: messages may have been lost, so all waiters ask now
			m.at, m.now = math.MaxInt64, math.MaxInt64
			c.waiting.Range(func(_, r any) bool {
				r.(*request).deliver(m)
				return true
			})
		case *redis.Message:
			parts := signed.FindStringSubmatch(event.Payload)
			if parts == nil {
				continue
			}
			fmt.Sscan(parts[1], new(string), &m.permits, &m.fence, &m.at, &m.now)
			r, waits := c.waiting.Load(parts[2])
			if waits && parts[3] == fmt.Sprintf("%x", sha1.Sum([]byte(r.(*request).secret+parts[1]))) {
				r.(*request).deliver(m)
			}
		}
	}
}
