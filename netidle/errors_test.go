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

// This file tests what the owner of a connection sees after a limit was reached: errors and, with
// WithExpire, deadlines.

func TestErrorsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := pipe(t, Limits{Idle: second})
		time.Sleep(2 * second)
		for name, err := range map[string]error{
			"Read":             errorOf(c.Read(make([]byte, 1))),
			"Write":            errorOf(c.Write(make([]byte, 1))),
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
	eof := func([]byte) (int, error) { return 0, io.EOF }
	fake := NewConn(&fakeConn{read: eof}, tw, Limits{ReadIdle: time.Millisecond})
	require.Eventually(t, func() bool { return fake.Reason() != 0 }, 10*second, time.Millisecond)
	_, err = fake.Read(nil)
	require.True(t, err == io.EOF)
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s timeouts
		c, _, tw := pipe(t, Limits{ReadIdle: 10 * second, Lifetime: time.Minute}, s.hook(start),
			WithExpire())
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
		for _, set := range []func(time.Time) error{
			c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline,
		} {
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

// An expired direction stays expired while the owner sets deadlines all the time.
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
			// The owner's last deadline may be in force for a moment, until check sets the past
			// one. It does not remain.
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

// After the owner's own Close, Timeout is false for all errors, so no one tries again.
func TestErrorsAfterExpireAndClose(t *testing.T) {
	c, _ := pair(t, newWheel(t), Limits{Idle: 5 * time.Millisecond}, WithExpire())
	_, err := c.Read(make([]byte, 1))
	var netErr net.Error
	require.ErrorAs(t, err, &netErr)
	require.True(t, netErr.Timeout())
	require.NoError(t, c.Close())
	_, readErr := c.Read(make([]byte, 1))
	_, writeErr := c.Write(make([]byte, 1))
	for _, err := range []error{readErr, writeErr, c.SetDeadline(time.Time{}), c.Close()} {
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorAs(t, err, &netErr)
		require.False(t, netErr.Timeout())
	}
}

// A reset returns the same kind of error as without a Conn: package net's.
func TestResetDuringCopy(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		from, peer := tcpPair(t)
		to, sink := tcpPair(t)
		defer sink.Close()
		defer to.Close()
		var src net.Conn = from
		if wrapped {
			src = NewConn(from, newWheel(t), Limits{Idle: time.Minute})
		}
		copied := make(chan error)
		go func() { copied <- errorOf(io.Copy(to, src)) }()
		time.Sleep(10 * time.Millisecond)
		peer.SetLinger(0)
		peer.Close()
		err := <-copied
		require.ErrorIs(t, err, syscall.ECONNRESET)
		op, ok := err.(*net.OpError)
		require.True(t, ok, "%T", err)
		require.Equal(t, "tcp", op.Net)
		if wrapped {
			require.Equal(t, "read", op.Op)
			require.IsType(t, new(os.SyscallError), op.Err)
		}
		src.Close()
	}
}

func TestDeadlineDuringCopy(t *testing.T) {
	from, _ := pair(t, newWheel(t), Limits{Idle: time.Minute})
	to, _ := pair(t, newWheel(t), Limits{})
	from.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	_, err := io.Copy(to, from)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	op, ok := err.(*net.OpError)
	require.True(t, ok)
	require.Equal(t, "read", op.Op)
}
