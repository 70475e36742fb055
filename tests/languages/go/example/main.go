// Example takes its turn in the market.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate"
)

func main() {
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1/"))
	check(err)
	gate, err := luagate.New(redis.NewClient(options), "lua", "luagate")
	check(err)
	defer gate.Close()

	// At most five processes of this account are in the market at a time.
	market := gate.Semaphore("market:account:17", 5, 10*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	permit, err := market.Acquire(ctx, 1) // in line, first come, first served
	check(err)
	defer permit.Release(ctx)
	fmt.Printf("trading as %s, fence %d\n", permit.ID, permit.Fence)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
