// Limits reads one command per line, runs it, and prints one line with its result:
//
//	limits <url> <prefix>
//
// acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh, release, look: apply to the
// permits granted last. await_lost MS: waits for the notice that they are lost. A WANT is
// NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS, and /HEAD_START_MS if it has one. A LEASE_MS that ends with + is renewed;
// - means no explicit lease.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

// held has the common methods of Permit and Permits.
type held interface {
	IsLost() bool
	Lost() <-chan struct{}
	Remaining() time.Duration
	Refresh(ctx context.Context) error
	Release(ctx context.Context) (bool, error)
}

type caller struct {
	client *luagate.Gate
	held   held
	lost   <-chan struct{}
}

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	client, err := luagate.New(redis.NewClient(options), luagate.WithPrefix(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	c := caller{client: client}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		result, err := c.answer(strings.Fields(input.Text()))
		var full *luagate.LineFullError
		switch {
		case err == nil:
			fmt.Println(result)
		case errors.As(err, &full):
			fmt.Println("full", full.Waiting)
		case errors.Is(err, luagate.ErrDenied):
			fmt.Println("none")
		case errors.Is(err, context.DeadlineExceeded):
			fmt.Println("timed_out")
		case errors.Is(err, luagate.ErrLost):
			fmt.Println("lost")
		default:
			fmt.Println("refused", err)
		}
	}
}

func (c *caller) answer(words []string) (string, error) {
	ctx := context.Background()
	switch words[0] {
	case "refresh":
		return "refreshed", c.held.Refresh(ctx)
	case "release":
		wasHeld, err := c.held.Release(ctx)
		return fmt.Sprint("released ", wasHeld), err
	case "await_lost":
		select {
		case <-c.lost:
			return "lost", nil
		case <-time.After(ms(words[1])):
			return "held", nil
		}
	case "look":
		state := "held"
		if c.held.IsLost() {
			state = "lost"
		}
		return fmt.Sprint(state, " ", c.held.Remaining().Milliseconds()), nil
	case "acquire", "several":
		limited, cancel := context.WithTimeout(ctx, ms(words[1]))
		defer cancel()
		return c.ask(limited, words[0], words[2:])
	}
	return c.ask(ctx, words[0], words[1:])
}

func (c *caller) ask(ctx context.Context, verb string, words []string) (string, error) {
	var wants []luagate.Want
	for _, word := range words {
		wants = append(wants, c.want(word))
	}
	var permit *luagate.Permit
	var permits *luagate.Permits
	var err error
	switch verb {
	case "acquire":
		permit, err = wants[0].Semaphore.Acquire(ctx, wants[0].Permits)
	case "try":
		permit, err = wants[0].Semaphore.TryAcquire(ctx, wants[0].Permits)
	case "several":
		permits, err = c.client.Several(wants...).Acquire(ctx)
	case "try_several":
		permits, err = c.client.Several(wants...).TryAcquire(ctx)
	}
	if err != nil {
		return "", err
	}
	if permit != nil {
		c.held, c.lost = permit, permit.Lost()
		return fmt.Sprint("held ", permit.Fence), nil
	}
	c.held, c.lost = permits, permits.Lost()
	fences := fmt.Sprint(permits.Fences()) // in brackets
	return "held " + strings.Trim(fences, "[]"), nil
}

func (c *caller) want(text string) luagate.Want {
	words := strings.Split(text, "/")
	lease, isRenewed := strings.CutSuffix(words[3], "+")
	semaphore := c.client.Semaphore(words[0], number(words[1]))
	if semaphore.AutoRenew = isRenewed; lease != "-" {
		semaphore.Lease = ms(lease)
	}
	semaphore.MaxWaiting, semaphore.AtLeast = number(words[4]), ms(words[5])
	if len(words) > 6 {
		semaphore.HeadStart = ms(words[6])
	}
	return semaphore.Want(number(words[2]))
}

func ms(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}
