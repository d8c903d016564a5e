// Futuremail keeps letters for years. Another process stores a hundred thousand of them, due within
// twenty years, and is killed with kill -9. Then this process opens the same files. It shows how
// long that takes, how much memory it needs, and what is due when, and delivers the letters of the
// next seconds.
//
//	go run ./examples/futuremail
//	go run ./examples/futuremail -letters 1000000
//
// File letters.go is the part to copy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

const (
	year = 365 * 24 * time.Hour
	soon = 20 // letters are due within seconds, the others within twenty years
)

func main() {
	n := flag.Int("letters", 100_000, "how many are kept, at least 100")
	story.Program{
		Play:   func(r *story.Run) { play(r, max(100, *n)) },
		Child:  keepAll,
		Passed: "no letter was lost,\nand none was delivered before its time",
	}.Main()
}

// keepAll is the other process. It gets a folder, and how many letters to keep in it: most are due
// evenly over twenty years, and the last ones from now on.
func keepAll(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	q, err := jobqueue.Open(args[0])
	if err != nil {
		return err
	}
	const batch = 1000
	some := make(map[string]letter)
	for i := range n {
		on := time.Now().Add(25*time.Hour + time.Duration(i)*(20*year/time.Duration(n)))
		if left := n - i; left <= soon {
			on = time.Now().Add(3*time.Second - time.Duration(left)*100*time.Millisecond)
		}
		some[fmt.Sprint("letter ", i)] = letter{"gopher", "How are you by now?", on}
		if len(some) == batch || i == n-1 {
			if err := keep(ctx, q, some); err != nil {
				return err
			}
			clear(some)
		}
	}
	fmt.Println("all are kept")
	<-ctx.Done() // it is killed before
	return q.Close()
}

func play(r *story.Run, n int) {
	ctx, folder, began := context.Background(), r.Folder(), time.Now()
	process := story.Start(folder, strconv.Itoa(n))
	process.Said()
	r.Printf("%d letters are kept, after %v", n, time.Since(began).Round(10*time.Millisecond))
	process.Kill()
	r.Printf("kill -9")

	began = time.Now()
	q, err := jobqueue.Open(folder)
	story.Must(err)
	stats, err := q.Stats(ctx)
	story.Must(err)
	kept := stats.Queues[0].Delayed + stats.Queues[0].Ready
	r.Printf("another process has opened the files, after %v",
		time.Since(began).Round(time.Millisecond))
	within, err := q.DueIn(ctx, letters, 24*time.Hour, year, 10*year, 100*year)
	story.Must(err)
	r.Printf("it keeps %d letters, and holds %s of memory", kept, memory())
	r.Printf("due today %d, within a year %d, within ten %d, later %d", within[0], within[1],
		within[2], within[3])
	total := within[0] + within[1] + within[2] + within[3]
	r.Check(kept == n && total == n, "%d letters are kept, %d are due", kept, total)
	next, _, err := q.List(ctx, letters, jobqueue.Delayed, "", soon+3)
	story.Must(err)
	for _, job := range next[max(0, len(next)-3):] {
		r.Printf("one of the next is for %v", job.Due.Format(time.RFC1123))
	}

	delivered := make(chan time.Duration) // how late
	end := story.Background(func(ctx context.Context) error {
		return deliver(ctx, q, func(_ string, l letter) error {
			delivered <- time.Since(l.On)
			return nil
		})
	})
	var late []time.Duration
	for range soon {
		late = append(late, <-delivered)
	}
	story.Must(end())
	story.Must(q.Close())
	r.Printf("%d letters were due and are delivered, late by\n%s", soon, story.Percentiles(late))
	r.Check(slices.Min(late) >= 0, "a letter was %v early", -slices.Min(late))
}

var anonymous = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// memory returns how much this process holds apart from files, if the platform tells.
func memory() string {
	status, _ := os.ReadFile("/proc/self/status")
	found := anonymous.FindSubmatch(status)
	if found == nil {
		return "an unknown amount"
	}
	kB, _ := strconv.Atoi(string(found[1]))
	return fmt.Sprintf("%d MB", (kB+1023)/1024)
}
