package main

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A peer's lateness is its own affair: the tests ask for one call, some time.
const patience = 5 * time.Second

func TestPeersFireOnce(t *testing.T) {
	for _, im := range peers {
		t.Run(im.Name, func(t *testing.T) {
			t.Parallel()
			in := im.Open()
			defer in.Close()
			var calls atomic.Int64
			fired := make(chan struct{}, 10)
			in.Start(50*time.Millisecond, func() { calls.Add(1); fired <- struct{}{} })
			select {
			case <-fired:
			case <-time.After(patience):
				t.Fatal("did not fire")
			}
			time.Sleep(200 * time.Millisecond)
			if n := calls.Load(); n != 1 {
				t.Errorf("fired %d times", n)
			}
		})
	}
}

func TestPeersStop(t *testing.T) {
	for _, im := range peers {
		t.Run(im.Name, func(t *testing.T) {
			t.Parallel()
			in := im.Open()
			defer in.Close()
			var calls atomic.Int64
			timer := in.Start(300*time.Millisecond, func() { calls.Add(1) })
			if im.Name == siddon.Name {
				defer func() {
					if err, ok := recover().(error); !ok || !errors.Is(err, lacking("Stop")) {
						t.Errorf("Stop panicked with %v", err)
					}
				}()
			}
			if !timer.Stop() {
				t.Error("Stop of a pending timer returned false")
			}
			time.Sleep(600 * time.Millisecond)
			if n := calls.Load(); n != 0 {
				t.Errorf("fired %d times after Stop", n)
			}
		})
	}
}

func TestPeersReset(t *testing.T) {
	for _, im := range peers {
		t.Run(im.Name, func(t *testing.T) {
			t.Parallel()
			in := im.Open()
			defer in.Close()
			if in.New == nil {
				t.Skip("cannot be reset")
			}
			fired := make(chan struct{}, 10)
			timer := in.New(func() { fired <- struct{}{} })
			for range 2 { // armed again after it has fired
				timer.Reset(time.Hour)
				timer.Reset(20 * time.Millisecond)
				select {
				case <-fired:
				case <-time.After(patience):
					t.Fatal("did not fire")
				}
			}
			timer.Reset(time.Hour)
			timer.Stop()
		})
	}
}
