// Example takes one of three permits, which all processes share.
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
	ctx := context.Background()
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1/"))
	check(err)
	client, err := luagate.New(redis.NewClient(options), "lua", "luagate")
	check(err)
	defer client.Close()
	permit, err := client.Semaphore("downloads", 3, 30*time.Second).Acquire(ctx, 1)
	check(err)
	defer permit.Release(ctx)
	fmt.Println("downloading, with fence", permit.Fence)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
