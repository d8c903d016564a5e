package wheelprom_test

import (
	"bufio"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/wheelprom"
)

// Two wheels in one registry, and what a scrape says of them.
func Example() {
	sessions, orders := timingwheel.New(), timingwheel.New(timingwheel.WithTick(100*time.Millisecond))
	defer sessions.Stop()
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
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		for _, name := range []string{"timers_pending", "timers_started_total", "timers_stopped_total"} {
			if strings.HasPrefix(lines.Text(), "timingwheel_"+name+"{") {
				fmt.Println(lines.Text())
			}
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
