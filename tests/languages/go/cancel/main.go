// Cancel starts 1,000 calls of Acquire for a semaphore of 3 permits, and cancels most after a random time. It prints how many were
// granted and how many were cancelled:
//
//	cancel <url> <prefix>
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

func main() {
	options, err := redis.ParseURL(os.Args[1])
	check(err)
	gate, err := luagate.New(redis.NewClient(options), luagate.WithPrefix(os.Args[2]))
	check(err)
	defer gate.Close()
	semaphore := gate.Semaphore("cancelled", 3)
	semaphore.Lease = time.Minute
	var granted, cancelled atomic.Int64
	for range 20 {
		var calls sync.WaitGroup
		for range 50 {
			calls.Add(1)
			go func() {
				defer calls.Done()
				if isGranted(semaphore) {
					granted.Add(1)
				} else {
					cancelled.Add(1)
				}
			}()
		}
		calls.Wait()
	}
	fmt.Println(granted.Load(), cancelled.Load())
}

func isGranted(semaphore *luagate.Semaphore) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rand.IntN(10) < 7 {
		time.AfterFunc(rand.N(30*time.Millisecond), cancel)
	}
	permit, err := semaphore.Acquire(ctx, 1+rand.IntN(2))
	if errors.Is(err, context.Canceled) {
		return false
	}
	check(err)
	time.Sleep(rand.N(5 * time.Millisecond))
	_, err = permit.Release(ctx)
	check(err)
	return true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
