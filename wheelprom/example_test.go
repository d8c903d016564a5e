package wheelprom_test

import (
	"bufio"
	"fmt"
	"log"
	"net/http/httptest"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/wheelprom"
)

// Two wheels in one registry, and a scrape of them.
func Example() {
	sessions := timingwheel.New()
	defer sessions.Stop()
	orders := timingwheel.New(timingwheel.WithTick(100 * time.Millisecond))
	defer orders.Stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(
		wheelprom.NewCollector(sessions, wheelprom.WithName("sessions")),
		wheelprom.NewCollector(orders, wheelprom.WithName("orders")),
	)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	for range 3 {
		sessions.AfterFunc(time.Hour, func() {})
	}
	sessions.AfterFunc(time.Minute, func() {}).Stop()
	orders.AfterFunc(30*time.Minute, func() {})

	answer, err := server.Client().Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	shown := regexp.MustCompile("^timingwheel_timers_(pending|started_total|stopped_total){")
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if shown.Match(lines.Bytes()) {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// timingwheel_timers_pending{wheel="orders"} 1
	// timingwheel_timers_pending{wheel="sessions"} 3
	// timingwheel_timers_started_total{wheel="orders"} 1
	// timingwheel_timers_started_total{wheel="sessions"} 4
	// timingwheel_timers_stopped_total{wheel="orders"} 0
	// timingwheel_timers_stopped_total{wheel="sessions"} 1
}
