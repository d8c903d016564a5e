package netidle

import (
	"io"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests Limits.MinRate and Limits.Spread.

// A client that trickles loses its connection when it falls behind MinRate, one that keeps up does
// not.
func TestMinRate(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		every  time.Duration
		bytes  int
		total  int
		at     time.Duration
	}{
		{"silent", Limits{Due: 10 * second, MinRate: 100}, time.Hour, 1, 0, 10 * second},
		{"a trickle", Limits{Due: 10 * second, MinRate: 100}, second, 1, 1000,
			10*second + 100*time.Millisecond},
		{"half the rate", Limits{Due: 10 * second, MinRate: 100}, second, 45, 1 << 20,
			17*second + 650*time.Millisecond},
		{"the rate, until it stops", Limits{Due: 10 * second, MinRate: 100}, second, 100, 6000,
			70 * second},
		{"fast, then nothing", Limits{Due: 10 * second, MinRate: 100}, second, 60000, 60000,
			610 * second},
		{"fast, then nothing, with a limit on that",
			Limits{Due: 10 * second, MinRate: 100, ReadIdle: 20 * second}, second, 60000, 60000,
			21 * second},
		{"without a rate", Limits{Due: 10 * second}, second, 100, 6000, 10 * second},
		{"a rate without Due", Limits{MinRate: 100, Idle: 20 * second}, second, 1, 10, 30 * second},
		{"overflow", Limits{Due: math.MaxInt64, MinRate: 1, Lifetime: time.Hour}, second, 1, 10,
			time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c, peer, _ := pipe(t, test.limits)
				go func() {
					for left := test.total; left > 0; left -= test.bytes {
						time.Sleep(test.every)
						peer.Write(make([]byte, test.bytes))
					}
				}()
				defer time.Sleep(10 * time.Hour) // until the writer has ended
				_, err := io.Copy(io.Discard, readerOnly{c})
				require.ErrorIs(t, err, ErrTimeout)
				require.Equal(t, test.at, time.Since(start).Round(10*time.Millisecond))
				require.GreaterOrEqual(t, time.Since(start), test.at)
			})
		})
	}
}

// Bytes count from SetLimits on, and only while a limit depends on them.
func TestMinRateCountsFromSetLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c, peer, _ := pipe(t, Limits{Due: 10 * second, MinRate: 100})
		go peer.Write(make([]byte, 1000))
		io.ReadFull(c, make([]byte, 1000))
		time.Sleep(5 * second)
		c.SetLimits(Limits{Idle: time.Hour})
		go peer.Write(make([]byte, 1000))
		io.ReadFull(c, make([]byte, 1000))
		c.SetLimits(Limits{Due: 10 * second, MinRate: 100})
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, Overdue, c.Reason())
		require.Equal(t, 15*second, time.Since(start))
	})
}

// Bytes that io.Copy moves in the kernel count, too.
func TestMinRateCopies(t *testing.T) {
	tw := newWheel(t)
	from, feed := pair(t, tw, Limits{Due: time.Hour, MinRate: 100})
	to, sink := pair(t, tw, Limits{})
	go func() {
		for range 10 {
			feed.Write(make([]byte, 100<<10))
			time.Sleep(time.Millisecond)
		}
		feed.Close()
	}()
	go func() {
		io.Copy(to, from)
		to.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, sink)
	require.NoError(t, err)
	require.EqualValues(t, 1000<<10, n)
	require.EqualValues(t, n, from.config.Load().more.rare.received.Load())
}

// Connections of the same age are closed at different times, none before its Lifetime.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s timeouts
		tw := timingwheel.New()
		inner := make(chan net.Conn, 200)
		l := NewListener(chanListener(inner), tw,
			Limits{Lifetime: time.Hour, Spread: 10 * time.Minute}, s.hook(start))
		for range cap(inner) {
			conn, peer := net.Pipe()
			defer peer.Close()
			inner <- conn
			_, err := l.Accept()
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Hour)
		whys, at := s.list()
		require.Len(t, whys, cap(inner))
		minutes := make(map[int]int)
		for _, at := range at {
			require.GreaterOrEqual(t, at, time.Hour)
			require.LessOrEqual(t, at, 70*time.Minute+time.Millisecond)
			minutes[int((at-time.Hour)/time.Minute)]++
		}
		require.GreaterOrEqual(t, len(minutes), 9)
		for _, n := range minutes {
			require.Less(t, n, 60)
		}

		conn, _ := net.Pipe()
		defer conn.Close()
		c := NewConn(conn, tw, Limits{})
		require.EqualValues(t, time.Duration(forever),
			c.lifetimeOf(Limits{Lifetime: math.MaxInt64 - 1, Spread: math.MaxInt64}))
		require.Zero(t, c.lifetimeOf(Limits{Spread: second}))
	})
}

type chanListener chan net.Conn

func (l chanListener) Accept() (net.Conn, error) { return <-l, nil }
func (l chanListener) Close() error              { return nil }
func (l chanListener) Addr() net.Addr            { return nil }
