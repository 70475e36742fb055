// The lock of bsm/redislock, with a lease of 30 s and, as in its example, a retry every 100 ms.
package main

import (
	"context"
	"errors"
	"fmt"
	"scenes"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	scene := scenes.OfArguments()
	options, err := redis.ParseURL(scene.URL)
	scenes.Must(err)
	client := redislock.New(redis.NewClient(options))
	ctx := context.Background()
	scene.Play(scene.Permits, func(number int) func() {
		for {
			every := redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
			lock, err := client.Obtain(ctx, fmt.Sprint("lock-", number), 30*time.Second, &every)
			if err == nil {
				return func() { scenes.Must(lock.Release(ctx)) }
			}
			// Without a deadline, Obtain tries for the length of the lease.
			if !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
		}
	})
}
