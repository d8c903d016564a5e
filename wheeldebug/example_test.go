package wheeldebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/wheeldebug"
)

// get returns how many timers are pending on the wheels that a server shows, by name.
func get(server *httptest.Server) map[string]int {
	answer, err := server.Client().Get(server.URL + "/debug/wheel/?format=json")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var all struct {
		Wheels []struct {
			Name    string
			Pending int
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		log.Fatal(err)
	}
	pending := map[string]int{}
	for _, wheel := range all.Wheels {
		pending[wheel.Name] = wheel.Pending
	}
	return pending
}

func ExampleHandler() {
	tw := timingwheel.New()
	tw.AfterFunc(time.Hour, func() {})

	mux := http.NewServeMux() // that of an internal address
	mux.Handle("/debug/wheel/", wheeldebug.Handler(tw))
	server := httptest.NewServer(mux)
	defer server.Close()

	fmt.Println("pending:", get(server))
	// Output: pending: map[wheel:1]
}

func ExampleSet() {
	sessions := timingwheel.New()
	retries := timingwheel.New(timingwheel.WithTick(100 * time.Millisecond))
	sessions.AfterFunc(time.Hour, func() {})
	sessions.AfterFunc(time.Hour, func() {})
	retries.AfterFunc(time.Minute, func() {})

	var wheels wheeldebug.Set
	wheels.Add("sessions", sessions)
	wheels.Add("retries", retries)
	mux := http.NewServeMux()
	mux.Handle("/debug/wheel/", &wheels)
	server := httptest.NewServer(mux)
	defer server.Close()

	fmt.Println("pending:", get(server))
	wheels.Remove("retries")
	fmt.Println("pending:", get(server))
	// Output:
	// pending: map[retries:1 sessions:2]
	// pending: map[sessions:2]
}

var noticed = make(chan struct{})

// report is a callback that is too slow for the driver.
func report() { <-noticed }

func ExampleLogSlow() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "for" { // these differ from run to run
				return slog.Attr{}
			}
			return a
		},
	}))
	logSlow, done := wheeldebug.LogSlow(logger), make(chan struct{})
	tw := timingwheel.New(timingwheel.WithInline(),
		// Programs pass wheeldebug.LogSlow(logger) itself; it logs the end of the callback too.
		timingwheel.WithSlowCallback(10*time.Millisecond, func(c timingwheel.SlowCallback) {
			if c.Over {
				close(done)
				return
			}
			logSlow(c)
			close(noticed)
		}))
	tw.AfterFunc(time.Millisecond, report)
	<-done
	// Output: level=WARN msg="a timer's callback is holding up the wheel" callback=github.com/go-timingwheel/timingwheel/wheeldebug_test.report
}

func ExampleWithProfilerLabels() {
	tw := timingwheel.New(wheeldebug.WithProfilerLabels(context.Background()))
	tw.AfterFunc(time.Minute, report)
	// In a profile, report and the functions it calls have the label timer=main.report:
	//
	//	go tool pprof -tagfocus timer=main.report cpu.out
	fmt.Println(tw.Len())
	// Output: 1
}
