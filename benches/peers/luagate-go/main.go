// A semaphore of luagate, with the package in clients/go.
package main

import (
	"context"
	"luagate"
	"scenes"

	"github.com/redis/go-redis/v9"
)

func main() {
	scene := scenes.OfArguments()
	options, err := redis.ParseURL(scene.URL)
	scenes.Must(err)
	gate, err := luagate.New(redis.NewClient(options))
	scenes.Must(err)
	defer gate.Close()
	semaphore := gate.Semaphore("scene", scene.Permits)
	scene.PlayBlocks(1, func(_ int, hold func()) {
		scenes.Must(semaphore.Do(context.Background(), 1, func(context.Context, *luagate.Permit) error {
			hold()
			return nil
		}))
	})
}
