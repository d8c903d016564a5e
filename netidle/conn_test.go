package netidle

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests limits to the tick, on pipes in a bubble: net.Pipe has no send queue
// to look at, and the fake clock moves only when nobody runs.

// struck records what the hook was told.
type struck struct {
	mu   sync.Mutex
	whys []Reason
	at   []time.Duration // since start
}

func (s *struck) hook(start time.Time) Option {
	return WithOnTimeout(func(_ *Conn, why Reason) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.whys = append(s.whys, why)
		s.at = append(s.at, time.Since(start))
	})
}

func (s *struck) list() ([]Reason, []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whys, s.at
}

// pipe returns a Conn, and its peer, which reads all the time and writes when it is
// told to.
func pipe(t *testing.T, limits Limits, opts ...Option) (*Conn, net.Conn, *timingwheel.TimingWheel) {
	t.Helper()
	tw := timingwheel.New()
	inner, peer := net.Pipe()
	c := NewConn(inner, tw, limits, opts...)
	go io.Copy(io.Discard, peer)
	t.Cleanup(func() {
		c.Close()
		peer.Close()
		require.Zero(t, tw.Len())
		tw.Stop()
	})
	return c, peer, tw
}

const second = time.Second

func TestLimitsExactly(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		reads  []time.Duration // when something comes to be read
		writes []time.Duration
		why    Reason
		at     time.Duration
	}{
		{name: "read idle from the beginning", limits: Limits{ReadIdle: 10 * second}, why: ReadIdle, at: 10 * second},
		{name: "read idle", limits: Limits{ReadIdle: 10 * second}, reads: []time.Duration{9 * second, 18*second + 999*time.Millisecond},
			writes: []time.Duration{20 * second}, why: ReadIdle, at: 28*second + 999*time.Millisecond},
		{name: "write idle", limits: Limits{WriteIdle: 10 * second}, writes: []time.Duration{3 * second, 4 * second},
			reads: []time.Duration{8 * second}, why: WriteIdle, at: 14 * second},
		{name: "idle, the last is a read", limits: Limits{Idle: 10 * second}, writes: []time.Duration{9 * second},
			reads: []time.Duration{18 * second}, why: Idle, at: 28 * second},
		{name: "idle, the last is a write", limits: Limits{Idle: 10 * second}, reads: []time.Duration{9 * second},
			writes: []time.Duration{18 * second}, why: Idle, at: 28 * second},
		{name: "lifetime", limits: Limits{Lifetime: 25 * second, Idle: 10 * second},
			reads: []time.Duration{9 * second, 18 * second, 24 * second}, why: Lifetime, at: 25 * second},
		{name: "overdue", limits: Limits{Due: 25 * second}, reads: []time.Duration{9 * second, 24 * second},
			writes: []time.Duration{23 * second}, why: Overdue, at: 25 * second},
		{name: "overdue, with other limits", limits: Limits{Due: 25 * second, Idle: 10 * second, ReadIdle: 20 * second, Lifetime: time.Hour},
			reads: []time.Duration{9 * second, 18 * second, 24 * second}, why: Overdue, at: 25 * second},
		{name: "the first of four", limits: Limits{ReadIdle: 5 * second, WriteIdle: 20 * second, Idle: 7 * second, Lifetime: time.Hour},
			writes: []time.Duration{4 * second}, why: ReadIdle, at: 5 * second},
		{name: "a millisecond before", limits: Limits{ReadIdle: 10 * second}, reads: []time.Duration{10*second - time.Millisecond},
			why: ReadIdle, at: 20*second - time.Millisecond},
		{name: "shorter than a tick", limits: Limits{ReadIdle: time.Microsecond}, why: ReadIdle, at: time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s struck
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
		for _, limits := range []Limits{{}, {ReadIdle: 1<<63 - 1, WriteIdle: 1<<63 - 1, Idle: 1<<63 - 1, Lifetime: 1<<63 - 1, Due: 1<<63 - 1}} {
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
		var s struck
		c, _, _ := pipe(t, Limits{ReadIdle: 10 * second, WriteIdle: 10 * second}, s.hook(start))
		time.Sleep(8 * second)
		c.TouchRead(time.Now())
		time.Sleep(second)
		c.TouchWrite(time.Now())
		c.TouchRead(start.Add(-time.Hour)) // changes nothing
		c.TouchRead(start.Add(7 * second)) // nor does this
		time.Sleep(time.Minute)
		whys, at := s.list()
		require.Equal(t, []Reason{ReadIdle}, whys)
		require.Equal(t, []time.Duration{18 * second}, at)
	})
}

func TestSetLimits(t *testing.T) {
	minute := Limits{Idle: time.Minute}
	for _, test := range []struct {
		name  string
		first Limits
		steps map[time.Duration]Limits
		at    time.Duration // 0: never
		why   Reason
	}{
		{"lifted", minute, map[time.Duration]Limits{30 * second: {}}, 0, 0},
		{"lifted and put back", minute, map[time.Duration]Limits{30 * second: {}, 300 * second: minute}, 360 * second, Idle},
		{"longer", minute, map[time.Duration]Limits{30 * second: {Idle: 90 * second}}, 90 * second, Idle},
		{"shorter", minute, map[time.Duration]Limits{30 * second: {Idle: 40 * second}}, 40 * second, Idle},
		{"shorter than what has passed", minute, map[time.Duration]Limits{30 * second: {Idle: 20 * second}}, 30 * second, Idle},
		{"the same again and again", minute, map[time.Duration]Limits{20 * second: minute, 40 * second: minute, 59 * second: minute}, 60 * second, Idle},
		{"first none", Limits{}, map[time.Duration]Limits{30 * second: {ReadIdle: 10 * second}}, 40 * second, ReadIdle},
		{"life counts from the beginning", Limits{}, map[time.Duration]Limits{30 * second: {Lifetime: 50 * second}}, 50 * second, Lifetime},
		{"due counts from the call", Limits{Due: 50 * second}, map[time.Duration]Limits{30 * second: {Due: 50 * second}}, 80 * second, Overdue},
		{"due counts from the call, beside others", Limits{Due: 50 * second, ReadIdle: time.Hour, Idle: time.Hour},
			map[time.Duration]Limits{30 * second: {Due: 50 * second, ReadIdle: time.Hour, Idle: time.Hour}}, 80 * second, Overdue},
		{"due goes on when it is set alone, then beside others", Limits{Due: 50 * second},
			map[time.Duration]Limits{30 * second: {Due: 50 * second, Idle: time.Hour}}, 80 * second, Overdue},
		{"due is met", Limits{Due: 50 * second}, map[time.Duration]Limits{30 * second: minute}, 90 * second, Idle},
		{"life that is over", Limits{}, map[time.Duration]Limits{30 * second: {Lifetime: 10 * second}}, 30 * second, Lifetime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s struck
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

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s struck
		c, _, tw := pipe(t, Limits{Idle: second}, s.hook(time.Now()))
		require.Equal(t, 1, tw.Len())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.Zero(t, tw.Len())
		c.SetLimits(Limits{ReadIdle: second})
		c.TouchRead(time.Now())
		require.Zero(t, tw.Len())
		time.Sleep(time.Hour)
		require.Zero(t, c.Reason())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.ErrClosedPipe, err, "as it is")
	})
}

func TestErrorsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := pipe(t, Limits{Idle: second})
		time.Sleep(2 * second)
		for name, err := range map[string]error{
			"Read":             second2(c.Read(make([]byte, 1))),
			"Write":            second2(c.Write(make([]byte, 1))),
			"SetDeadline":      c.SetDeadline(time.Now()),
			"SetReadDeadline":  c.SetReadDeadline(time.Now()),
			"SetWriteDeadline": c.SetWriteDeadline(time.Now()),
		} {
			require.ErrorIs(t, err, ErrTimeout, name)
			require.ErrorIs(t, err, net.ErrClosed, name)
			require.ErrorIs(t, err, io.ErrClosedPipe, name)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
			require.ErrorContains(t, err, "netidle: idle: ", name)
			var timeout *TimeoutError
			require.ErrorAs(t, err, &timeout, name)
			require.Equal(t, Idle, timeout.Reason)
			var netErr net.Error
			require.ErrorAs(t, err, &netErr, name)
			require.False(t, netErr.Timeout(), "a loop that goes on would spin")
		}
	})
}

func second2[A, B any](_ A, b B) B { return b }

func TestErrorsOfSockets(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	for _, expire := range []bool{false, true} {
		var opts []Option
		if expire {
			opts = append(opts, WithExpire())
		}
		a, b := tcpPair(t)
		defer b.Close()
		c := NewConn(a, tw, Limits{ReadIdle: 10 * time.Millisecond}, opts...)
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, !expire, errors.Is(err, net.ErrClosed))
		require.Equal(t, expire, errors.Is(err, os.ErrDeadlineExceeded))
		op, ok := err.(*net.OpError)
		require.True(t, ok, "net/http looks for the type")
		require.Equal(t, "read", op.Op)
		require.Equal(t, expire, op.Timeout())
		require.Equal(t, expire, c.Close() == nil)
	}
}

func TestEOFStaysEOF(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	a, b := tcpPair(t)
	c := NewConn(a, tw, Limits{ReadIdle: 10 * time.Millisecond}, WithExpire())
	defer c.Close()
	b.Close()
	_, err := c.Read(make([]byte, 1))
	require.True(t, err == io.EOF)
	fake := NewConn(&fakeConn{read: func([]byte) (int, error) { return 0, io.EOF }}, tw, Limits{ReadIdle: time.Millisecond})
	require.Eventually(t, func() bool { return fake.Reason() != 0 }, 10*second, time.Millisecond)
	_, err = fake.Read(nil)
	require.True(t, err == io.EOF)
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s struck
		c, _, tw := pipe(t, Limits{ReadIdle: 10 * second, Lifetime: time.Minute}, s.hook(start), WithExpire())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, 10*second, time.Since(start))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotErrorIs(t, err, net.ErrClosed)
		var netErr net.Error
		require.ErrorAs(t, err, &netErr)
		require.True(t, netErr.Timeout())

		_, err = c.Write([]byte("goodbye"))
		require.NoError(t, err)
		for _, set := range []func(time.Time) error{c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline} {
			for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour)} {
				require.NoError(t, set(deadline))
				_, err = c.Read(make([]byte, 1))
				require.ErrorIs(t, err, ErrTimeout)
				_, err = c.Write([]byte("goodbye"))
				require.NoError(t, err)
			}
		}

		require.Equal(t, 1, tw.Len(), "the lifetime limits writing still")
		time.Sleep(time.Hour)
		require.Zero(t, tw.Len())
		_, err = c.Write([]byte("goodbye"))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "lifetime")
		_, err = c.Read(make([]byte, 1))
		require.ErrorContains(t, err, "read idle")
		whys, at := s.list()
		require.Equal(t, []Reason{ReadIdle, Lifetime}, whys)
		require.Equal(t, []time.Duration{10 * second, time.Minute}, at)
		require.Equal(t, ReadIdle, c.Reason())
		require.NoError(t, c.Close())
	})
}

func TestExpireWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer, tw := pipe(t, Limits{WriteIdle: 10 * second}, WithExpire())
		time.Sleep(time.Minute)
		require.Zero(t, tw.Len())
		_, err := c.Write([]byte("x"))
		require.ErrorIs(t, err, ErrTimeout)
		go peer.Write([]byte("x"))
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err, "reading goes on")
	})
}

// A callback that was handed over before Close and runs after it does nothing.
func TestCheckAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := make(chan func(), 1)
		tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { checks <- f }))
		var s struck
		c := NewConn(&fakeConn{}, tw, Limits{Idle: second}, s.hook(time.Now()))
		check := <-checks
		c.Close()
		check()
		whys, _ := s.list()
		require.Empty(t, whys)
		require.Zero(t, c.Reason())
		require.Zero(t, tw.Len())

		c = NewConn(&fakeConn{}, tw, Limits{Idle: second}, s.hook(time.Now()))
		check = <-checks
		c.TouchRead(time.Now())
		check() // not any more
		require.Zero(t, c.Reason())
		require.Equal(t, 1, tw.Len())
		c.Close()
	})
}

// A direction that is over stays over while the owner sets deadlines all the time.
func TestExpireAgainstDeadlines(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	for range 15 {
		a, b := tcpPair(t)
		c := NewConn(a, tw, Limits{Idle: 3 * time.Millisecond}, WithExpire())
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						c.SetReadDeadline(time.Time{})
						c.SetDeadline(time.Now().Add(time.Hour))
					}
				}
			})
		}
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrTimeout)
		close(stop)
		wg.Wait()
		for {
			// The owner's last deadline may stand for a moment while check is about to
			// set the past one; it does not stay.
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, ErrTimeout)
			if _, err = c.Write(make([]byte, 1)); err != nil {
				require.ErrorIs(t, err, ErrTimeout)
				break
			}
		}
		c.Close()
		b.Close()
	}
}

func TestOnlyBytesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		var s struck
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

// Only what a limit asks for costs a clock reading.
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

func TestStoppedWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		tw.Stop()
		inner, peer := net.Pipe()
		defer peer.Close()
		var s struck
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

// Connections that live when the wheel is stopped keep their limits: one that goes on
// being used, one that does not, and one whose limit is changed afterwards.
func TestWheelStoppedUnderConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		connect := func() (*Conn, *struck) {
			inner, peer := net.Pipe()
			t.Cleanup(func() { peer.Close() })
			s := &struck{}
			return NewConn(inner, tw, Limits{ReadIdle: 10 * second}, s.hook(start)), s
		}
		used, usedStruck := connect()
		_, idleStruck := connect()
		changed, changedStruck := connect()
		time.Sleep(5 * second)
		require.Empty(t, tw.Drain(), "they are nothing that the caller could go on with")
		used.TouchRead(time.Now())
		changed.SetLimits(Limits{ReadIdle: 7 * second})
		time.Sleep(time.Hour)
		for _, c := range []struct {
			*struck
			at time.Duration
		}{{idleStruck, 10 * second}, {usedStruck, 15 * second}, {changedStruck, 7 * second}} {
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
		"netidle: nil connection":                func() { NewConn(nil, tw, Limits{}) },
		"netidle: nil TimingWheel":               func() { NewConn(conn, nil, Limits{}) },
		"netidle: nil listener":                  func() { NewListener(nil, tw, Limits{}) },
		"netidle: nil hook":                      func() { WithOnTimeout(nil) },
		"netidle: nil Option":                    func() { NewConn(conn, tw, Limits{}, nil) },
		"netidle: negative ReadIdle limit -1ns":  func() { NewConn(conn, tw, Limits{ReadIdle: -1}) },
		"netidle: negative WriteIdle limit -1ns": func() { NewListener(l, tw, Limits{WriteIdle: -1}) },
		"netidle: negative Idle limit -1ns":      func() { NewListener(l, tw, Limits{Idle: -1}) },
		"netidle: negative Lifetime limit -1m0s": func() { NewConn(conn, tw, Limits{}).SetLimits(Limits{Lifetime: -time.Minute}) },
	} {
		require.PanicsWithValue(t, message, call)
	}
	require.PanicsWithValue(t, "netidle: nil TimingWheel", func() { NewListener(l, nil, Limits{}) })
}

func TestReasonString(t *testing.T) {
	require.Equal(t, []string{"none", "read idle", "write idle", "idle", "lifetime", "overdue", "Reason(6)"},
		[]string{Reason(0).String(), ReadIdle.String(), WriteIdle.String(), Idle.String(), Lifetime.String(),
			Overdue.String(), Reason(6).String()})
}

func TestUnsupported(t *testing.T) {
	tw := timingwheel.New()
	c := NewConn(&fakeConn{}, tw, Limits{})
	_, err := c.SyscallConn()
	for _, err := range []error{err, c.CloseWrite(), c.CloseRead()} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestInnerAbilities(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	a, b := tcpPair(t)
	defer b.Close()
	c := NewConn(a, tw, Limits{Idle: time.Minute})
	defer c.Close()
	require.Same(t, a, c.NetConn())
	require.Equal(t, a.LocalAddr(), c.LocalAddr())
	require.Equal(t, a.RemoteAddr(), c.RemoteAddr())
	require.NoError(t, c.CloseWrite())
	_, err := b.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(uintptr) {}))
	require.NoError(t, c.CloseRead())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(-1)))
	found, ok := Find(outerConn{c})
	require.True(t, ok)
	require.Same(t, c, found)
	_, ok = Find(a)
	require.False(t, ok)
}

type outerConn struct{ net.Conn }

func (c outerConn) NetConn() net.Conn { return c.Conn }

// Datagrams are not split.
func TestMessagesStayWhole(t *testing.T) {
	tw := timingwheel.New()
	for network, pieces := range map[string]int{"udp": 1, "udp4": 1, "unixpacket": 1, "unixgram": 1, "ip:1": 1, "pipe": 3, "tcp": 3} {
		sizes := 0
		c := NewConn(&fakeConn{network: network, write: func(p []byte) (int, error) { sizes++; return len(p), nil }}, tw, Limits{})
		n, err := c.Write(make([]byte, 2*writePiece+1))
		require.NoError(t, err)
		require.Equal(t, 2*writePiece+1, n)
		require.Equal(t, pieces, sizes, network)
	}
}

// What two goroutines write does not mix, although it goes in pieces.
func TestWritesDoNotMix(t *testing.T) {
	tw := timingwheel.New()
	var got []byte
	c := NewConn(&fakeConn{write: func(p []byte) (int, error) {
		got = append(got, p[0], p[len(p)-1])
		time.Sleep(time.Millisecond)
		return len(p), nil
	}}, tw, Limits{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			p := make([]byte, 5*writePiece)
			for j := range p {
				p[j] = byte(i)
			}
			c.Write(p)
		})
	}
	wg.Wait()
	require.Len(t, got, 40)
	for i := range got {
		require.Equal(t, got[i/10*10], got[i])
	}
}

// fakeConn is an inner connection that has nothing but what it must, and does as it
// is told.
type fakeConn struct {
	net.Conn
	network     string
	read, write func([]byte) (int, error)
}

func (c *fakeConn) Read(p []byte) (int, error)       { return c.read(p) }
func (c *fakeConn) Write(p []byte) (int, error)      { return c.write(p) }
func (c *fakeConn) Close() error                     { return nil }
func (c *fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fakeConn) SetWriteDeadline(time.Time) error { return nil }
func (c *fakeConn) LocalAddr() net.Addr              { return fakeAddr(c.network) }

type fakeAddr string

func (a fakeAddr) Network() string { return string(a) }
func (a fakeAddr) String() string  { return string(a) }

// tcpPair returns both ends of a connection; the test closes them.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn)
}

var _ interface {
	net.Conn
	syscall.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
} = (*Conn)(nil)
