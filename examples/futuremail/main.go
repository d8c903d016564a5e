// Futuremail keeps letters for years. A first process stores a hundred thousand of them, due within
// twenty years, and is killed with kill -9. A second one opens the same files. It shows how long
// that takes, how much memory it needs, and what is due when, and delivers the letters of the next
// seconds.
//
//	go run ./examples/futuremail
//	go run ./examples/futuremail -letters 1000000
//
// File letters.go is the part to copy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	n := flag.Int("letters", 100_000, "how many letters are kept")
	story.Program{
		Name:   "futuremail",
		About:  "Futuremail keeps letters for years, and is killed before it delivers the first.",
		Passed: "no letter was lost,\nand none was delivered before its time",
		Play: func(r *story.Run) {
			if *n < 100 {
				story.Misuse("-letters must be at least 100")
			}
			play(r, *n)
		},
		Child: func(ctx context.Context, args []string) error {
			q, err := jobqueue.Open(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				err = keepAll(ctx, q, args[1])
			} else {
				err = deliverSome(ctx, q)
			}
			return errors.Join(err, q.Close())
		},
	}.Main()
}

// keepAll stores n letters: most are due evenly over twenty years, and the last ones from now on.
func keepAll(ctx context.Context, q *jobqueue.Client, letters string) error {
	n, err := strconv.Atoi(letters)
	if err != nil {
		return err
	}
	const batch = 1000
	now := time.Now()
	for from := 0; from < n-soon; from += batch {
		some := make(map[string]letter)
		for i := from; i < min(from+batch, n-soon); i++ {
			on := now.Add(25*time.Hour + time.Duration(i)*(20*year/time.Duration(n)))
			some[fmt.Sprint("letter ", i)] = letter{"gopher", "How are you by now?", on}
		}
		if err := keep(ctx, q, some); err != nil {
			return err
		}
	}
	some := make(map[string]letter)
	for i := range soon {
		on := time.Now().Add(time.Second + time.Duration(i)*100*time.Millisecond)
		some[fmt.Sprint("letter ", n-soon+i)] = letter{"gopher", "Hello again!", on}
	}
	if err := keep(ctx, q, some); err != nil {
		return err
	}
	fmt.Println("all are kept")
	<-ctx.Done() // it is killed before
	return nil
}

// An inventory is what the second process has found.
type inventory struct {
	Letters int
	Memory  string
	Within  []int       // a day, a year, ten years, a hundred more
	Next    []time.Time // of those that are not for today
}

// A sent letter.
type sent struct{ On, At time.Time }

func deliverSome(ctx context.Context, q *jobqueue.Client) error {
	stats, err1 := q.Stats(ctx)
	within, err2 := q.DueIn(ctx, letters, 24*time.Hour, year, 10*year, 100*year)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	next, _, err := q.List(ctx, letters, jobqueue.Delayed, "", soon+3)
	if err != nil {
		return err
	}
	inv := inventory{Letters: stats.Queues[0].Delayed + stats.Queues[0].Ready, Within: within,
		Memory: story.Memory()}
	for _, job := range next {
		if time.Until(job.Due) > time.Hour {
			inv.Next = append(inv.Next, job.Due)
		}
	}
	say := json.NewEncoder(os.Stdout)
	if err := say.Encode(inv); err != nil {
		return err
	}
	return deliver(ctx, q, func(_ string, l letter) error {
		return say.Encode(sent{l.On, time.Now()})
	})
}

func play(r *story.Run, n int) {
	folder, err := os.MkdirTemp("", "futuremail")
	story.Must(err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "letters")

	began := time.Now()
	process := story.Start(path, strconv.Itoa(n))
	process.Said()
	r.Printf("%d letters are kept, after %v", n, time.Since(began).Round(10*time.Millisecond))
	process.Kill()
	r.Printf("kill -9")

	began = time.Now()
	process = story.Start(path)
	var inv inventory
	story.Must(json.Unmarshal([]byte(process.Said()), &inv))
	r.Printf("another process has started and opened the files, after %v",
		time.Since(began).Round(time.Millisecond))
	r.Printf("it keeps %d letters, and holds %s of memory", inv.Letters, inv.Memory)
	r.Printf("due today %d, within a year %d, within ten %d, later %d", inv.Within[0],
		inv.Within[1], inv.Within[2], inv.Within[3])
	for _, on := range inv.Next[:min(3, len(inv.Next))] {
		r.Printf("one of the next is for %v", on.Format(time.RFC1123))
	}
	total := 0
	for _, some := range inv.Within {
		total += some
	}
	r.Check(inv.Letters == n && total == n, "%d letters are kept, %d are due", inv.Letters, total)

	var late []time.Duration
	for range soon {
		var s sent
		story.Must(json.Unmarshal([]byte(process.Said()), &s))
		late = append(late, s.At.Sub(s.On))
	}
	process.End()
	r.Printf("%d letters were due and are delivered, late by\n%s", soon, story.Percentiles(late))
	r.Check(slices.Min(late) >= 0, "a letter was %v early", -slices.Min(late))
}
