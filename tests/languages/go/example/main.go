// Example does something that only three processes may do at once.
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
	if err != nil {
		log.Fatal(err)
	}
	client, err := luagate.New(redis.NewClient(options), "lua", "luagate")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	permit, err := client.Semaphore("downloads", 3, 30*time.Second).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	fmt.Printf("%s holds %d, fence %d\n", permit.ID, permit.Permits, permit.Fence)
}
