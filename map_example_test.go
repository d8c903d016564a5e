package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// Sessions that end when they have not been used for a while.
func ExampleMap() {
	type session struct{ user string }
	tw := timingwheel.New()
	ended := make(chan string)
	sessions := timingwheel.NewMap(tw, func(id string, s *session) { ended <- s.user })

	const idle = 50 * time.Millisecond
	sessions.Set("id-1", &session{"ada"}, idle) // at login
	if s, ok := sessions.Touch("id-1", idle); ok {
		fmt.Println("hello", s.user) // at each request
	}
	if s, ok := sessions.Delete("id-2"); ok {
		fmt.Println("goodbye", s.user) // at logout
	}
	fmt.Println(<-ended, "has been idle")
	// Output:
	// hello ada
	// ada has been idle
}

// A debounce by key: the file is loaded once, when nothing was written for a while.
func ExampleMap_TouchOrSet() {
	tw := timingwheel.New()
	loaded := make(chan string)
	changes := timingwheel.NewMap(tw, func(file string, _ struct{}) { loaded <- file })
	for range 3 {
		changes.TouchOrSet("app.conf", struct{}{}, 20*time.Millisecond)
	}
	fmt.Println("load", <-loaded)
	// Output: load app.conf
}

// A callback on a goroutine of its own may wait, so one goroutine can receive what expires.
func ExampleNewMap() {
	tw := timingwheel.New()
	expired := make(chan int)
	leases := timingwheel.NewMap(tw, func(job int, worker string) { expired <- job })
	leases.Set(1, "worker a", 10*time.Millisecond)
	leases.Set(2, "worker b", time.Hour)
	fmt.Println("job", <-expired, "goes to another worker")
	fmt.Println(leases.Len(), "is held")
	// Output:
	// job 1 goes to another worker
	// 1 is held
}

func ExampleMap_Set() {
	tw := timingwheel.New()
	conns := timingwheel.NewMap(tw, func(device, conn string) { fmt.Println("close", conn) })
	conns.Set("thermometer", "connection 1", time.Hour)
	if old, replaced := conns.Set("thermometer", "connection 2", time.Hour); replaced {
		fmt.Println("close", old) // it will not expire any more
	}
	// Output: close connection 1
}

func ExampleMap_Expire() {
	tw := timingwheel.New()
	done := make(chan string)
	batches := timingwheel.NewMap(tw, func(topic string, _ struct{}) { done <- topic })
	batches.Set("orders", struct{}{}, time.Hour)
	batches.Expire("orders") // it is full
	fmt.Println("send", <-done)
	// Output: send orders
}

func ExampleMap_Drain() {
	tw := timingwheel.New()
	retries := timingwheel.NewMap(tw, func(url string, attempt int) {})
	retries.Set("https://example.com/b", 1, 2*time.Hour)
	retries.Set("https://example.com/a", 3, time.Hour)
	for _, left := range retries.Drain() {
		fmt.Println(left.Key, left.Value) // to be stored until the program starts again
	}
	// Output:
	// https://example.com/a 3
	// https://example.com/b 1
}
