// Worker acquires and releases permits of the semaphore `together` until its standard input ends:
//
//	worker <url> <prefix> <seed>
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

// headStart is the head start of one call in four.
const headStart = 50 * time.Millisecond

type worker struct {
	rdb    *redis.Client
	stream string
	gate   *luagate.Gate
	random *rand.Rand
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: worker <url> <prefix> <seed>")
	}
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	seed, err := strconv.ParseUint(os.Args[3], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	rdb, prefix := redis.NewClient(options), os.Args[2]
	gate, err := luagate.New(rdb, luagate.WithPrefix(prefix))
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	w := worker{rdb, prefix + ":log", gate, rand.New(rand.NewPCG(seed, 0))}
	running, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for running.Err() == nil {
		err := w.round(context.Background())
		switch {
		case err == nil:
			fmt.Println("served")
		case errors.Is(err, luagate.ErrDenied):
			w.sleep(1, 20)
		default:
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			time.Sleep(50 * time.Millisecond)
		}
	}
	fmt.Println("finished")
}

// round acquires permits, holds them for a moment, and releases them.
func (w *worker) round(ctx context.Context) error {
	together := w.gate.Semaphore("together", 3)
	together.Lease = 2 * time.Second
	if w.random.IntN(4) == 0 {
		together.HeadStart = headStart
	}
	permit, err := w.acquire(ctx, together, 1+w.random.IntN(2))
	if err != nil {
		return err
	}
	err = w.log(ctx, "event", "enter", "language", "go", "id", permit.ID, "permits", permit.Permits,
		"fence", permit.Fence, "ticket", cmp.Or(permit.Ticket.String(), "0"), "expires_at", permit.ExpiresAt(),
		"head_start", together.HeadStart.Milliseconds())
	if err == nil {
		w.sleep(0, 20)
		if w.random.IntN(3) == 0 {
			err = permit.Refresh(ctx)
		}
	}
	if left := w.log(ctx, "event", "leave", "id", permit.ID); left != nil {
		return errors.Join(err, left) // the log lacks the end of the stay, so the permit is not released: its lease ends
	}
	_, released := permit.Release(ctx)
	return errors.Join(err, released)
}

func (w *worker) acquire(ctx context.Context, together *luagate.Semaphore, permits int) (*luagate.Permit, error) {
	if w.random.IntN(4) == 0 {
		return together.TryAcquire(ctx, permits)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return together.Acquire(ctx, permits)
}

// log writes to the log. After a connection error go-redis retries.
func (w *worker) log(ctx context.Context, values ...any) error {
	return w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: w.stream, Values: values}).Err()
}

func (w *worker) sleep(least, most int) {
	time.Sleep(time.Duration(least+w.random.IntN(most-least+1)) * time.Millisecond)
}
