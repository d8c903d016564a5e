package timingwheel

import (
	"context"
	"reflect"
	"runtime"
	"runtime/trace"
	"time"
)

// This file holds what a wheel writes into an execution trace while one is taken.

// region begins a region, if a trace is being taken.
func region(name string) *trace.Region {
	if !trace.IsEnabled() {
		return nil
	}
	return trace.StartRegion(context.Background(), "timingwheel: "+name)
}

func endRegion(r *trace.Region) {
	if r != nil {
		r.End()
	}
}

// traceWakeup notes how late the alarm rang. Any further lateness is the driver's or the
// callbacks'.
func (c *clock) traceWakeup(armed int64) {
	if armed != unset && armed != awake && trace.IsEnabled() {
		late := time.Duration(c.now()) - c.duration(armed)
		message := "the alarm rang " + late.String() + " after its tick"
		trace.Log(context.Background(), "timingwheel", message)
	}
}

// nameOf returns the name of a function, as package runtime has it.
func nameOf(f func()) string {
	return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
}
