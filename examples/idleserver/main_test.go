package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"math"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	cfg := config{conns: 200, idle: 300 * time.Millisecond, run: 2 * time.Second, talking: 0.25, tick: time.Millisecond}
	r, err := run(cfg, &out)
	require.NoError(t, err)
	r.print(&out)
	t.Log(out.String())

	v := r.verdict
	require.True(t, r.ok())
	require.Equal(t, 200, v.opened)
	require.Equal(t, v.opened, v.closed+v.remaining)
	require.NotZero(t, v.closed, "some clients fell silent")
	require.Len(t, v.lateness, v.closed)
	require.GreaterOrEqual(t, v.lateness[0], time.Duration(0))
	require.NotZero(t, r.touches)
	require.Zero(t, r.stats.Pending)
	require.Zero(t, r.stats.Dropped, "every connection that ended has stopped its timer")
	require.Contains(t, out.String(), "Passed")
}

// TestPage looks at the wheel while the clients talk.
func TestPage(t *testing.T) {
	var out story.Buffer
	ended := make(chan error, 1)
	go func() {
		cfg := config{conns: 20, idle: 300 * time.Millisecond, run: 2 * time.Second, talking: 1, tick: time.Millisecond, addr: "127.0.0.1:0"}
		_, err := run(cfg, &out)
		ended <- err
	}()
	address := out.Await(t, `http://127\.0\.0\.1:\d+/debug/wheel/`)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(address)
	require.NoError(t, err)
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	require.NoError(t, err)
	require.Contains(t, string(page), "Timing wheel")
	require.NoError(t, <-ended)
	_, err = client.Get(address)
	require.Error(t, err, "the page ends with the program")

	_, err = run(config{conns: 1, idle: time.Second, run: minRun, tick: time.Millisecond, addr: "127.0.0.1:-1"}, io.Discard)
	require.Error(t, err)
}

func TestRunThatIsTooShortToBecomeIdle(t *testing.T) {
	r, err := run(config{conns: 10, idle: time.Duration(math.MaxInt64), run: minRun, tick: time.Millisecond}, io.Discard)
	require.NoError(t, err)
	require.True(t, r.ok())
	require.Zero(t, r.verdict.closed)
	require.Equal(t, r.verdict.opened, r.verdict.remaining)
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	const idle, bound = time.Second, 5 * time.Second
	touch := 3 * time.Second
	deadline := touch + idle
	for name, c := range map[string]struct {
		record record
		want   verdict
	}{
		"on time":                      {record{lastTouch: touch, fired: deadline}, verdict{closed: 1}},
		"late":                         {record{lastTouch: touch, fired: deadline + bound}, verdict{closed: 1}},
		"a nanosecond early":           {record{lastTouch: touch, fired: deadline - 1}, verdict{early: 1}},
		"early, of a talker":           {record{lastTouch: touch, fired: deadline - 1, talking: true}, verdict{early: 1}},
		"far too late":                 {record{lastTouch: touch, fired: deadline + bound + 1}, verdict{forgotten: 1}},
		"never closed":                 {record{lastTouch: touch, ended: deadline + bound + 1}, verdict{forgotten: 1}},
		"open, not idle":               {record{lastTouch: touch, ended: deadline - 1, talking: true}, verdict{remaining: 1}},
		"open, idle for a moment":      {record{lastTouch: touch, ended: deadline + bound}, verdict{remaining: 1}},
		"talker held up":               {record{lastTouch: touch, fired: deadline, talking: true}, verdict{closed: 1, delayed: 1}},
		"touch lost to a firing":       {record{lastTouch: touch, fired: deadline + 1, lost: true, talking: true}, verdict{closed: 1, delayed: 1}},
		"touch lost to nothing at all": {record{lastTouch: touch, ended: deadline + 1, lost: true}, verdict{forgotten: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge([]record{c.record, {lastTouch: touch, fired: deadline}}, idle, bound)
			require.Equal(t, c.want.early == 0 && c.want.forgotten == 0, got.ok())
			require.Equal(t, got.opened, got.closed+got.early+got.forgotten+got.remaining)
			got.lateness = nil
			c.want.opened = 2
			c.want.closed++ // the other one
			require.Equal(t, c.want, got)
		})
	}
}

func TestJudgeDoesNotOverflow(t *testing.T) {
	v := judge([]record{{lastTouch: time.Hour, ended: time.Hour + time.Second}}, math.MaxInt64, time.Second)
	require.Equal(t, verdict{opened: 1, remaining: 1}, v)
}

// A touch may come when the timer has been handed over and the callback has not
// begun. It must not make that callback look early, and must leave nothing armed.
func TestTouchThatLoses(t *testing.T) {
	handedOver := make(chan func(), 1)
	wheel := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
	const idle = time.Millisecond
	srv := &server{wheel: wheel, idle: idle, start: time.Now()}
	near, far := net.Pipe()
	defer far.Close()
	srv.add(near)
	expire := <-handedOver

	c := srv.conns[0]
	armed := c.lastTouch.Load()
	srv.idle = time.Hour // or the second arming might fire as well
	require.False(t, c.touch())
	require.Equal(t, armed, c.lastTouch.Load())
	require.Zero(t, wheel.Len())

	expire()
	srv.running.Wait() // the reader found the connection closed
	require.NoError(t, wheel.Shutdown(context.Background()))
	v := judge(srv.records(nil), idle, time.Hour)
	require.Equal(t, 1, v.closed)
	require.True(t, v.ok())
}

func TestReportOfFailure(t *testing.T) {
	r := result{verdict: judge([]record{{lastTouch: time.Second, fired: 2*time.Second - 1}}, time.Second, time.Second)}
	require.False(t, r.ok())
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "FAILED: 1 closed early, 0 forgotten.")
}

func TestParse(t *testing.T) {
	cfg, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Less(t, cfg.idle, cfg.run)

	for _, args := range [][]string{
		{"-conns", "0"}, {"-conns", "-1"}, {"-conns", "many"}, {"-idle", "0"}, {"-idle", "-1s"}, {"-run", "0"},
		{"-talking", "1.1"}, {"-talking", "-0.1"}, {"-talking", "NaN"}, {"-tick", "0"}, {"-tick", "3s"}, {"-nonsense"}, {"extra"},
	} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
		require.NotContains(t, err.Error(), "\n", "%v", args)
	}

	var help bytes.Buffer
	_, err = parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, help.String(), "-talking")
}

func TestAffordable(t *testing.T) {
	require.Equal(t, 1, affordable(1))
	if limit, known := fileLimit(); known {
		require.Less(t, uint64(affordable(math.MaxInt)), limit)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4}
	require.EqualValues(t, 3, quantile(sorted, 0.5))
	require.EqualValues(t, 4, quantile(sorted, 1))
	require.EqualValues(t, 7, quantile([]time.Duration{7}, 0.5))
}
