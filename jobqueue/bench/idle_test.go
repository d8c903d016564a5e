package bench

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// BenchmarkIdle measures what a process costs that waits: the job queue with many jobs that are due
// in hours and a handler, asynq with none, and a process without either.
func BenchmarkIdle(b *testing.B) {
	b.Run("nothing", idle)
	b.Run("jobqueue", func(b *testing.B) {
		c := open(b, filepath.Join(b.TempDir(), "store"))
		c.Handle(queue, func(context.Context, *jobqueue.Job) error { return nil })
		addMany(b, c, pending(), scattered)
		stop := run(c)
		idle(b)
		stop()
		check(b, c.Close())
	})
	b.Run("asynq", func(b *testing.B) {
		openAsynq(0, 0)(b, func(int) {})
		idle(b)
	})
}

// idle reports the CPU time of the process, and how often one of its threads went to sleep, over
// idleTime, once what went before has settled.
func idle(b *testing.B) {
	const idleTime = 20 * time.Second
	settle(b)
	before := usage(b)
	time.Sleep(idleTime)
	after := usage(b)
	b.ReportMetric(float64((after.cpu-before.cpu).Microseconds())/1000, "cpu-ms/20s")
	b.ReportMetric(float64(after.sleeps-before.sleeps), "sleeps/20s")
	b.ReportMetric(0, "ns/op")
}

// settle waits until the threads of the process hardly wake up any more, or for a while.
func settle(b *testing.B) {
	for range 20 {
		before := usage(b)
		time.Sleep(time.Second)
		if usage(b).sleeps-before.sleeps < 20 {
			return
		}
	}
}

type used struct {
	cpu    time.Duration
	sleeps int64 // voluntary context switches of the threads
}

func usage(b *testing.B) used {
	var u syscall.Rusage
	check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return used{time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Nvcsw)}
}
