package netidle

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests when limits are reached, to the tick, on pipes in a bubble. A net.Pipe has no
// send queue to look at, and the fake clock moves only while no goroutine runs.

func TestLimitsExactly(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		reads  times // when bytes arrive
		writes times
		why    Reason
		at     time.Duration
	}{
		{name: "read idle from the beginning", limits: Limits{ReadIdle: 10 * second}, why: ReadIdle,
			at: 10 * second},
		{name: "read idle", limits: Limits{ReadIdle: 10 * second},
			reads:  times{9 * second, 18*second + 999*time.Millisecond},
			writes: times{20 * second}, why: ReadIdle, at: 28*second + 999*time.Millisecond},
		{name: "write idle", limits: Limits{WriteIdle: 10 * second},
			writes: times{3 * second, 4 * second},
			reads:  times{8 * second}, why: WriteIdle, at: 14 * second},
		{name: "idle, the last is a read", limits: Limits{Idle: 10 * second},
			writes: times{9 * second},
			reads:  times{18 * second}, why: Idle, at: 28 * second},
		{name: "idle, the last is a write", limits: Limits{Idle: 10 * second},
			reads:  times{9 * second},
			writes: times{18 * second}, why: Idle, at: 28 * second},
		{name: "lifetime", limits: Limits{Lifetime: 25 * second, Idle: 10 * second},
			reads: times{9 * second, 18 * second, 24 * second}, why: Lifetime, at: 25 * second},
		{name: "overdue", limits: Limits{Due: 25 * second}, reads: times{9 * second, 24 * second},
			writes: times{23 * second}, why: Overdue, at: 25 * second},
		{name: "overdue, with other limits", limits: Limits{Due: 25 * second, Idle: 10 * second,
			ReadIdle: 20 * second, Lifetime: time.Hour},
			reads: times{9 * second, 18 * second, 24 * second}, why: Overdue, at: 25 * second},
		{name: "the first of four", limits: Limits{ReadIdle: 5 * second, WriteIdle: 20 * second,
			Idle: 7 * second, Lifetime: time.Hour},
			writes: times{4 * second}, why: ReadIdle, at: 5 * second},
		{name: "a millisecond before", limits: Limits{ReadIdle: 10 * second},
			reads: times{10*second - time.Millisecond},
			why:   ReadIdle, at: 20*second - time.Millisecond},
		{name: "shorter than a tick", limits: Limits{ReadIdle: time.Microsecond}, why: ReadIdle,
			at: time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s timeouts
				c, peer, _ := pipe(t, test.limits, s.hook(start))
				closed := make(chan time.Duration, 1)
				go func() {
					_, err := io.Copy(io.Discard, readerOnly{c})
					closed <- time.Since(start)
					require.ErrorIs(t, err, ErrTimeout)
				}()
				for _, at := range test.reads {
					time.AfterFunc(at, func() { peer.Write([]byte("ping")) })
				}
				for _, at := range test.writes {
					time.AfterFunc(at, func() { c.Write([]byte("pong")) })
				}
				require.Equal(t, test.at, <-closed)
				synctest.Wait()
				whys, at := s.list()
				require.Equal(t, []Reason{test.why}, whys)
				require.Equal(t, []time.Duration{test.at}, at)
				require.Equal(t, test.why, c.Reason())
			})
		})
	}
}

func TestNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const never = forever
		for _, limits := range []Limits{
			{}, {ReadIdle: never, WriteIdle: never, Idle: never, Lifetime: never, Due: never},
		} {
			c, _, tw := pipe(t, limits)
			time.Sleep(time.Second)
			c.Write([]byte("x"))
			c.SetLimits(limits)
			time.Sleep(1000 * time.Hour)
			require.Zero(t, c.Reason())
			if limits == (Limits{}) {
				require.Zero(t, tw.Len())
			}
		}
	})
}

func TestBusyTimerFiresOncePerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { fired++; f() }))
		inner, peer := net.Pipe()
		go io.Copy(io.Discard, peer)
		c := NewConn(inner, tw, Limits{Idle: 10 * second})
		for range 10000 {
			time.Sleep(10 * time.Millisecond)
			c.Write([]byte("x"))
		}
		c.Close()
		peer.Close()
		require.LessOrEqual(t, fired, 11) // 100 s
	})
}

func TestTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s timeouts
		c, _, _ := pipe(t, Limits{ReadIdle: 10 * second, WriteIdle: 10 * second}, s.hook(start))
		time.Sleep(8 * second)
		c.TouchRead(time.Now())
		time.Sleep(second)
		c.TouchWrite(time.Now())
		c.TouchRead(start.Add(-time.Hour)) // changes nothing
		c.TouchRead(start.Add(7 * second)) // changes nothing
		time.Sleep(time.Minute)
		whys, at := s.list()
		require.Equal(t, []Reason{ReadIdle}, whys)
		require.Equal(t, []time.Duration{18 * second}, at)
	})
}

// Only a direction on which a limit depends costs a clock reading.
func TestTouchesOnlyForLimits(t *testing.T) {
	for _, test := range []struct {
		limits       Limits
		reads, write bool
	}{
		{Limits{}, false, false},
		{Limits{Lifetime: time.Hour}, false, false},
		{Limits{ReadIdle: time.Hour}, true, false},
		{Limits{WriteIdle: time.Hour}, false, true},
		{Limits{Idle: time.Hour}, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, peer, _ := pipe(t, test.limits)
			time.Sleep(time.Second)
			before := c.lastRead()
			go peer.Write([]byte("x"))
			c.Read(make([]byte, 1))
			require.Equal(t, test.reads, c.lastRead() > before)
			time.Sleep(time.Second)
			before = c.lastWrite()
			c.Write([]byte("x"))
			require.Equal(t, test.write, c.lastWrite() > before)
		})
	}
}

func TestOnlyBytesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		var s timeouts
		c := NewConn(&fakeConn{
			read:  func([]byte) (int, error) { time.Sleep(second); return 0, nil },
			write: func([]byte) (int, error) { return 0, errors.New("full") },
		}, tw, Limits{Idle: 10 * second}, s.hook(start))
		for range 20 {
			c.Read(make([]byte, 1))
			c.Write(make([]byte, 1))
		}
		_, at := s.list()
		require.Equal(t, []time.Duration{10 * second}, at)
	})
}

func TestSetLimits(t *testing.T) {
	type steps map[time.Duration]Limits
	minute := Limits{Idle: time.Minute}
	for _, test := range []struct {
		name  string
		first Limits
		steps steps
		at    time.Duration // 0: never
		why   Reason
	}{
		{"lifted", minute, steps{30 * second: {}}, 0, 0},
		{"lifted and put back", minute, steps{30 * second: {}, 300 * second: minute}, 360 * second,
			Idle},
		{"longer", minute, steps{30 * second: {Idle: 90 * second}}, 90 * second, Idle},
		{"shorter", minute, steps{30 * second: {Idle: 40 * second}}, 40 * second, Idle},
		{"shorter than what has passed", minute, steps{30 * second: {Idle: 20 * second}},
			30 * second, Idle},
		{"the same again and again", minute,
			steps{20 * second: minute, 40 * second: minute, 59 * second: minute},
			60 * second, Idle},
		{"first none", Limits{}, steps{30 * second: {ReadIdle: 10 * second}}, 40 * second,
			ReadIdle},
		{"lifetime counts from the beginning", Limits{},
			steps{30 * second: {Lifetime: 50 * second}}, 50 * second, Lifetime},
		{"due counts from the call", Limits{Due: 50 * second},
			steps{30 * second: {Due: 50 * second}}, 80 * second, Overdue},
		{"due counts from the call, beside others",
			Limits{Due: 50 * second, ReadIdle: time.Hour, Idle: time.Hour},
			steps{30 * second: {Due: 50 * second, ReadIdle: time.Hour, Idle: time.Hour}},
			80 * second, Overdue},
		{"due set alone, then beside others", Limits{Due: 50 * second},
			steps{30 * second: {Due: 50 * second, Idle: time.Hour}}, 80 * second, Overdue},
		{"due is lifted in time", Limits{Due: 50 * second}, steps{30 * second: minute}, 90 * second,
			Idle},
		{"lifetime that has passed", Limits{}, steps{30 * second: {Lifetime: 10 * second}},
			30 * second, Lifetime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s timeouts
				c, _, tw := pipe(t, test.first, s.hook(start))
				for at, limits := range test.steps {
					time.AfterFunc(at, func() { c.SetLimits(limits) })
				}
				time.Sleep(time.Hour)
				_, at := s.list()
				require.Equal(t, test.why, c.Reason())
				require.Zero(t, tw.Len())
				if test.at == 0 {
					require.Empty(t, at)
				} else {
					require.Equal(t, []time.Duration{test.at}, at)
				}
			})
		})
	}
}

func TestStoppedWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		tw.Stop()
		inner, peer := net.Pipe()
		defer peer.Close()
		var s timeouts
		c := NewConn(inner, tw, Limits{ReadIdle: 10 * second}, s.hook(start))
		time.Sleep(5 * second)
		c.TouchRead(time.Now())
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 15*second, time.Since(start))
		synctest.Wait()
		whys, _ := s.list()
		require.Equal(t, []Reason{ReadIdle}, whys)

		inner, peer = net.Pipe()
		defer peer.Close()
		NewConn(inner, tw, Limits{ReadIdle: 10 * second}, s.hook(start)).Close()
		time.Sleep(time.Hour)
		whys, _ = s.list()
		require.Len(t, whys, 1)
	})
}

// Connections keep their limits if the wheel is stopped: one that is still used, one that is not,
// and one whose limit is changed afterwards.
func TestWheelStoppedUnderConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		connect := func() (*Conn, *timeouts) {
			inner, peer := net.Pipe()
			t.Cleanup(func() { peer.Close() })
			s := &timeouts{}
			return NewConn(inner, tw, Limits{ReadIdle: 10 * second}, s.hook(start)), s
		}
		used, usedTimeouts := connect()
		_, idleTimeouts := connect()
		changed, changedTimeouts := connect()
		time.Sleep(5 * second)
		require.Empty(t, tw.Drain(), "Drain does not hand them back")
		used.TouchRead(time.Now())
		changed.SetLimits(Limits{ReadIdle: 7 * second})
		time.Sleep(time.Hour)
		for _, c := range []struct {
			*timeouts
			at time.Duration
		}{{idleTimeouts, 10 * second}, {usedTimeouts, 15 * second}, {changedTimeouts, 7 * second}} {
			whys, at := c.list()
			require.Equal(t, []Reason{ReadIdle}, whys)
			require.Equal(t, []time.Duration{c.at}, at)
		}
	})
}

func TestMisuse(t *testing.T) {
	tw := timingwheel.New()
	conn := &fakeConn{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for message, call := range map[string]func(){
		"nil connection":  func() { NewConn(nil, tw, Limits{}) },
		"nil TimingWheel": func() { NewConn(conn, nil, Limits{}) },
		"nil listener":    func() { NewListener(nil, tw, Limits{}) },
		"nil hook":        func() { WithOnTimeout(nil) },
		"nil Option":      func() { NewConn(conn, tw, Limits{}, nil) },

		"negative ReadIdle limit -1ns":  func() { NewConn(conn, tw, Limits{ReadIdle: -1}) },
		"negative WriteIdle limit -1ns": func() { NewListener(l, tw, Limits{WriteIdle: -1}) },
		"negative Idle limit -1ns":      func() { NewListener(l, tw, Limits{Idle: -1}) },
		"negative Due limit -1ns":       func() { NewConn(conn, tw, Limits{Due: -1}) },
		"negative Spread limit -1ns":    func() { NewConn(conn, tw, Limits{Spread: -1}) },
		"negative MinRate -1":           func() { NewConn(conn, tw, Limits{MinRate: -1}) },
		"negative Lifetime limit -1m0s": func() {
			NewConn(conn, tw, Limits{}).SetLimits(Limits{Lifetime: -time.Minute})
		},
	} {
		require.PanicsWithValue(t, "netidle: "+message, call)
	}
	require.PanicsWithValue(t, "netidle: nil TimingWheel", func() { NewListener(l, nil, Limits{}) })
}

func TestReasonString(t *testing.T) {
	for reason, want := range map[Reason]string{
		0: "none", ReadIdle: "read idle", WriteIdle: "write idle", Idle: "idle",
		Lifetime: "lifetime", Overdue: "overdue", 6: "Reason(6)",
	} {
		require.Equal(t, want, reason.String())
	}
}
