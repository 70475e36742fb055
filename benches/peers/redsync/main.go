// The mutex of redsync on one server, with its defaults: a lease of 8 s, 32 tries 50 to 250 ms apart, then an error. The
// program then asks again.
package main

import (
	"errors"
	"fmt"
	"scenes"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	scene := scenes.OfArguments()
	options, err := redis.ParseURL(scene.URL)
	scenes.Must(err)
	locks := redsync.New(goredis.NewPool(redis.NewClient(options)))
	scene.Play(scene.Permits, func(lock int) func() {
		mutex := locks.NewMutex(fmt.Sprint("lock-", lock))
		for {
			err := mutex.Lock()
			if err == nil {
				break
			}
			if taken := new(redsync.ErrTaken); !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
				panic(err)
			}
		}
		return func() {
			_, err := mutex.Unlock()
			scenes.Must(err)
		}
	})
}
