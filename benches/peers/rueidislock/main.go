// The lock of rueidislock, configured as documented for one server of version 7.0.5 or later: KeyMajority 1 and
// NoLoopTracking. A lease of 5 s, renewed; client-side caching notifies waiters of a release.
package main

import (
	"context"
	"fmt"
	"scenes"
	"strings"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func main() {
	scene := scenes.OfArguments()
	options, err := rueidis.ParseURL(strings.TrimSuffix(scene.URL, "/"))
	scenes.Must(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   options,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	scenes.Must(err)
	scene.Play(scene.Permits, func(lock int) func() {
		_, leave, err := locker.WithContext(context.Background(), fmt.Sprint("lock-", lock))
		scenes.Must(err)
		return leave
	})
}
