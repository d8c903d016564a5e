package main

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// The tests of peers require that a timer calls f once. They do not check when.

// eachPeer runs a test on an instance of each peer.
func eachPeer(t *testing.T, test func(t *testing.T, im workload.Impl, in workload.Instance)) {
	for _, im := range peers {
		t.Run(im.Name, func(t *testing.T) {
			t.Parallel()
			in := im.Open()
			defer in.Close()
			test(t, im, in)
		})
	}
}

// receive fails the test if fired has nothing for long.
func receive(t *testing.T, fired <-chan struct{}) {
	select {
	case <-fired:
	case <-time.After(5 * time.Second):
		require.Fail(t, "did not fire")
	}
}

func TestPeersFireOnce(t *testing.T) {
	eachPeer(t, func(t *testing.T, _ workload.Impl, in workload.Instance) {
		var calls atomic.Int64
		fired := make(chan struct{}, 10)
		in.Start(50*time.Millisecond, func() { calls.Add(1); fired <- struct{}{} })
		receive(t, fired)
		time.Sleep(200 * time.Millisecond)
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestPeersStop(t *testing.T) {
	eachPeer(t, func(t *testing.T, im workload.Impl, in workload.Instance) {
		var calls atomic.Int64
		timer := in.Start(300*time.Millisecond, func() { calls.Add(1) })
		if im.Name == siddon.Name {
			require.PanicsWithError(t, lacking("Stop").Error(), func() { timer.Stop() })
			return
		}
		require.True(t, timer.Stop())
		time.Sleep(600 * time.Millisecond)
		require.Zero(t, calls.Load())
	})
}

func TestPeersReset(t *testing.T) {
	eachPeer(t, func(t *testing.T, _ workload.Impl, in workload.Instance) {
		if in.New == nil {
			t.Skip("cannot be reset")
		}
		fired := make(chan struct{}, 10)
		timer := in.New(func() { fired <- struct{}{} })
		for range 2 { // armed again after it has fired
			timer.Reset(time.Hour)
			timer.Reset(20 * time.Millisecond)
			receive(t, fired)
		}
		timer.Reset(time.Hour)
		timer.Stop()
	})
}
