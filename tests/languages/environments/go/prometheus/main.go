package main

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"luagate"
)

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	check(err)
	gate, err := luagate.New(redis.NewClient(options))
	check(err)
	defer gate.Close()
	prometheus.MustRegister(metrics{gate})
	market := gate.Semaphore("market", 1)
	ctx := context.Background()
	permit, err := market.TryAcquire(ctx, 1)
	check(err)
	if _, err := market.TryAcquire(ctx, 1); err == nil {
		log.Fatal("a second permit was granted")
	}
	_, err = permit.Release(ctx)
	check(err)
	page := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for name, count := range map[string]int{
		"granted": 1, "waited": 0, "denied": 1, "line_full": 0, "lost": 0, "renewed": 0, "reconnects": 0,
	} {
		line := fmt.Sprintf("# TYPE luagate_%s_total counter\nluagate_%s_total %d\n", name, name, count)
		if !strings.Contains(page.Body.String(), line) {
			log.Fatalf("no %q in:\n%s", line, page.Body)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
