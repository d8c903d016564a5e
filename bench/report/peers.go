package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	gxtime "github.com/dubbogo/gost/time"
	siddontang "github.com/siddontang/go/timingwheel"
	"github.com/zeromicro/go-zero/core/collection"

	"github.com/go-timingwheel/timingwheel/bench"
)

// This file puts the other libraries' wheels behind bench.Impl. An adapter adds
// what any caller of the library has to write and no more. Each ticks every
// millisecond, as this library does by default, where its design allows that.

// peers are the implementations that bench does not have.
var peers = []bench.Impl{goZero, gost, siddon, scannedMap, lockedHeap}

// A lacking is what a Timer panics with whose library has no such call. It is
// left to end the child process, whichever goroutine made the call; the parent
// knows it by its text and shows "lacks", not "failed".
type lacking string

const lackingPrefix = "lacks: "

func (l lacking) Error() string { return lackingPrefix + string(l) }

// goZero is go-zero's collection.TimingWheel: one goroutine behind unbuffered
// channels. With 1 ms a tick, 4,096 slots keep the share of a million timers that
// a tick walks over at 250. Callbacks that are due in one tick share a goroutine.
var goZero = bench.Impl{Name: "go-zero", Open: func() bench.Instance {
	tw, err := collection.NewTimingWheel(time.Millisecond, 4096, func(_, f any) { f.(func())() })
	if err != nil {
		panic(err) // the arguments above are at fault
	}
	return bench.Instance{
		Start: func(d time.Duration, f func()) bench.Timer {
			t := &goZeroTimer{tw, f}
			t.Reset(d)
			return t
		},
		New:   func(f func()) bench.Timer { return &goZeroTimer{tw, f} },
		Close: tw.Stop,
	}
}}

// A goZeroTimer is its own key in the wheel.
type goZeroTimer struct {
	tw *collection.TimingWheel
	f  func()
}

// Stop cannot tell whether it came in time: the library does not say.
func (t *goZeroTimer) Stop() bool { return t.tw.RemoveTimer(t) == nil }

func (t *goZeroTimer) Reset(d time.Duration) bool { return t.tw.SetTimer(t, t.f, d) == nil }

// gost is dubbogo/gost's TimerWheel: five sorted lists behind a queue, 10 ms a
// tick. It has no counterpart of New: a timer that has fired cannot be armed
// again, and its Reset counts from the start of the timer, not from now.
var gost = bench.Impl{Name: "gost", Open: func() bench.Instance {
	tw := gxtime.NewTimerWheel()
	// It reckons from the time of its latest tick, which before the first is the
	// start of the program.
	time.Sleep(50 * time.Millisecond)
	return bench.Instance{
		Start: func(d time.Duration, f func()) bench.Timer {
			for {
				if t := tw.AfterFunc(d, f); t != nil {
					return &gostTimer{t}
				}
				runtime.Gosched() // the queue of 128 requests is full, and the timer was not started
			}
		},
		// Close would wait for a goroutine that waits for a ticker that Close has
		// stopped, unless a tick comes in between.
		Close: tw.Stop,
	}
}}

type gostTimer struct{ t *gxtime.Timer }

// Stop cannot tell whether it came in time, and the request is lost without a
// word when the queue is full: the library does not say. It panics when a timer
// is stopped twice, hence the nil.
func (t *gostTimer) Stop() bool {
	if t.t == nil {
		return false
	}
	t.t.Stop()
	t.t = nil
	return true
}

func (*gostTimer) Reset(time.Duration) bool { panic(lacking("Reset from now")) }

// siddon is siddontang/go's wheel: a ring of channels, one for each tick of the
// longest delay, so a wheel for an hour with ticks of 1 ms would take 370 MB
// empty. With 10 ms it is 37. It has After alone: a callback takes a goroutine
// that waits, and nothing can be stopped.
var siddon = bench.Impl{Name: "siddontang", Open: func() bench.Instance {
	const tick = 10 * time.Millisecond
	tw := siddontang.NewTimingWheel(tick, int(61*time.Minute/tick))
	var started atomic.Int64
	return bench.Instance{
		Start: func(d time.Duration, f func()) bench.Timer {
			if started.Add(1) > siddonMax {
				panic(lacking("room for more than 2 M goroutines"))
			}
			due := tw.After(max(d, 0)) // for less than nothing it panics
			go func() {
				<-due
				f()
			}()
			return siddonTimer{}
		},
		Close: tw.Stop,
	}
}}

// siddonMax keeps the goroutines, 2 KB each and more, from taking the machine down.
const siddonMax = 2_000_000

type siddonTimer struct{}

func (siddonTimer) Stop() bool               { panic(lacking("Stop")) }
func (siddonTimer) Reset(time.Duration) bool { panic(lacking("Reset")) }
func (siddonTimer) Unstoppable()             {}

// impls are all implementations, this library's first.
var impls = append(slices.Clone(bench.Impls), peers...)
