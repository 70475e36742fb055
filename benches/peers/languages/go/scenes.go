// Package scenes runs a scene with goroutines: workers acquire, hold and release until the time is over.
package scenes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

// Scene has the arguments of the program; the README of the folder `peers` describes them.
type Scene struct {
	URL     string
	Workers int
	Permits int
	Hold    time.Duration
	Time    time.Duration
	Once    bool // each worker takes one turn, then waits for all others; otherwise it asks again at once
}

// OfArguments reads the arguments of the program.
func OfArguments() Scene {
	if len(os.Args) != 7 {
		panic("URL WORKERS PERMITS HOLD_US SECONDS TURNS")
	}
	return Scene{
		URL:     os.Args[1],
		Workers: int(number(2)),
		Permits: int(number(3)),
		Hold:    time.Duration(number(4)) * time.Microsecond,
		Time:    time.Duration(number(5) * float64(time.Second)),
		Once:    os.Args[6] == "once",
	}
}

func number(place int) float64 {
	value, err := strconv.ParseFloat(os.Args[place], 64)
	Must(err)
	return value
}

// Must ends the program if there is an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Play calls enter with the number of a lock, below locks, and then the returned function, which releases.
func (scene Scene) Play(locks int, enter func(lock int) (leave func())) {
	scene.PlayBlocks(locks, func(lock int, hold func()) {
		leave := enter(lock)
		hold()
		leave()
	})
}

// PlayBlocks calls block with the number of a lock, below locks, and with a function that holds it for its time.
func (scene Scene) PlayBlocks(locks int, block func(lock int, hold func())) {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	Must(err)
	start := time.Now()
	now := func() int64 { return time.Since(start).Microseconds() }
	all := make([][][4]int64, scene.Workers)
	goesOn := func() bool { return time.Since(start) < scene.Time }
	work := func(stays *[][4]int64) {
		for {
			lock, asked := rand.IntN(locks), now()
			block(lock, func() {
				entered := now()
				if scene.Hold > 0 {
					time.Sleep(scene.Hold)
				}
				*stays = append(*stays, [4]int64{int64(lock), asked, entered, now()})
			})
			if scene.Once || !goesOn() {
				return
			}
		}
	}
	for goesOn() {
		var workers sync.WaitGroup
		for worker := range all {
			workers.Go(func() { work(&all[worker]) })
		}
		workers.Wait()
	}
	stays := [][4]int64{}
	for _, some := range all {
		stays = append(stays, some...)
	}
	Must(json.NewEncoder(os.Stdout).Encode(map[string]any{"stays": stays}))
}
