package netidle

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests that a limit measures how long the peer keeps the program waiting: a peer that
// waits for the program is not idle, and a silent peer is, whatever layers lie between.

// While a write to a slow client blocks, no one reads the backend. Its data is in the receive
// queue, or in a layer above.
func TestSlowClientOfProxy(t *testing.T) {
	const limit = time.Second // longer than this machine may stall
	copies := map[string]func(io.Writer) io.Writer{
		"spliced":  func(w io.Writer) io.Writer { return w },
		"buffered": func(w io.Writer) io.Writer { return writerOnly{w} },
	}
	var all sync.WaitGroup
	for name, layer := range layers {
		for _, limits := range []Limits{{ReadIdle: limit}, {Idle: limit}} {
			for how, hide := range copies {
				all.Go(func() {
					if err := proxySlowly(t, layer, limits, hide); err != nil {
						t.Errorf("%s, %s, %v: %v", name, how, limits, err)
					}
				})
			}
		}
	}
	all.Wait()
}

func proxySlowly(t *testing.T, layer func(net.Conn) net.Conn, limits Limits,
	hide func(io.Writer) io.Writer) error {
	near, backend := tcpPair(t)
	defer backend.Close()
	server, client := tcpPair(t)
	defer client.Close()
	defer server.Close()
	var s timeouts
	tw := timingwheel.New()
	defer tw.Stop()
	c := NewConn(layer(near), tw, limits, s.hook(time.Now()))
	defer c.Close()

	// This is more than all buffers hold. Their sizes are not changed: TCP takes its time to send
	// segments again that did not fit into small ones, and meanwhile the backend is silent.
	const size = 16 << 20
	sent := make(chan time.Time, 1)
	go func() {
		piece := make([]byte, 1<<20)
		for range size / len(piece) {
			backend.Write(piece)
		}
		last := time.Now()
		backend.Write(piece[:1])
		sent <- last
	}()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(hide(server), c)
		server.Close()
		copied <- err
	}()
	limit := max(limits.ReadIdle, limits.Idle)
	time.Sleep(4 * limit)
	if whys, at := s.list(); len(whys) > 0 {
		return fmt.Errorf("closed at %v while the backend waits for us", at)
	}
	if _, err := io.CopyN(io.Discard, client, size+1); err != nil {
		return err
	}
	last := <-sent
	if err := <-copied; !errors.Is(err, ErrTimeout) {
		return fmt.Errorf("copied: %w", err)
	}
	if after := time.Since(last); after < limit {
		return fmt.Errorf("closed %v after the last byte", after)
	}
	return nil
}

// A Read that waits although bytes are unread does not wait for the peer.
func TestReadThatIsHeldUp(t *testing.T) {
	if !canAskReads {
		t.Skip("the kernel cannot be asked")
	}
	near, peer := tcpPair(t)
	defer peer.Close()
	inner := heldUp{near, make(chan struct{})}
	c := NewConn(inner, newWheel(t), Limits{Idle: 50 * time.Millisecond})
	defer c.Close()
	_, err := peer.Write([]byte("x"))
	require.NoError(t, err)
	time.AfterFunc(300*time.Millisecond, func() { close(inner.gate) })
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrTimeout)
}

type heldUp struct {
	net.Conn
	gate chan struct{}
}

func (c heldUp) Read(p []byte) (int, error) {
	<-c.gate
	return c.Conn.Read(p)
}

// An unread end of the stream also keeps the connection.
func TestEndOfBackendWaits(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, layer := range layers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, backend := tcpPair(t)
			c := NewConn(layer(near), newWheel(t), Limits{ReadIdle: limit})
			defer c.Close()
			if name != "socket" || !canAskReads { // time counts until the first Read
				backend.Write([]byte("x"))
				_, err := c.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			require.NoError(t, backend.Close())
			time.Sleep(5 * limit)
			_, err := c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		})
	}
}

// After a Read that comes late, but within the limit, the whole limit begins again.
func TestLateRead(t *testing.T) {
	const limit = 400 * time.Millisecond
	for name, layer := range layers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, backend := tcpPair(t)
			defer backend.Close()
			c := NewConn(layer(near), newWheel(t), Limits{ReadIdle: limit})
			defer c.Close()
			_, err := backend.Write([]byte("ab"))
			require.NoError(t, err)
			time.Sleep(3 * limit / 4)
			for range 2 {
				_, err = c.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			read := time.Now()
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, ErrTimeout)
			require.GreaterOrEqual(t, time.Since(read), limit-time.Millisecond)
		})
	}
}

func TestReverseProxyToSlowClient(t *testing.T) {
	const limit = 200 * time.Millisecond
	const size = 30 << 20
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, size))
	}))
	defer backend.Close()
	tw := newWheel(t)
	var hooks atomic.Int32
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{Dial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err != nil {
			return nil, err
		}
		return NewConn(c, tw, Limits{Idle: limit},
			WithOnTimeout(func(*Conn, Reason) { hooks.Add(1) })), nil
	}}
	defer transport.CloseIdleConnections()
	proxy.Transport = transport
	front := httptest.NewServer(proxy)
	defer front.Close()
	response, err := front.Client().Get(front.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	time.Sleep(5 * limit)
	require.Zero(t, hooks.Load())
	n, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.Eventually(t, func() bool { return hooks.Load() == 1 }, 30*time.Second,
		time.Millisecond, "idle from now on")
}

// If the kernel does not know of all unread bytes, time counts exactly while a call waits.
func TestTimeCountsWhileACallWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		reads  times // when a Read begins; bytes arrive at once for all but the last
		writes times
		at     time.Duration
		why    Reason
	}{
		{"a handler that computes", Limits{ReadIdle: 10 * second},
			times{second, 60 * second, 60 * second}, nil, 70 * second, ReadIdle},
		{"a handler that computes and answers", Limits{Idle: 10 * second},
			times{second, 60 * second},
			times{55 * second}, 70 * second, Idle},
		{"no Read", Limits{Idle: 10 * second}, nil, nil, 10 * second, Idle},
		{"no Read, but writes", Limits{Idle: 10 * second}, nil, times{5 * second}, 15 * second,
			Idle},
		{"time always counts for writes", Limits{WriteIdle: 10 * second}, times{second, 5 * second},
			nil,
			10 * second, WriteIdle},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s timeouts
				c, peer, _ := pipe(t, test.limits, s.hook(start))
				for i, at := range test.reads {
					time.AfterFunc(at, func() {
						if i < len(test.reads)-1 {
							go peer.Write([]byte("x"))
						}
						c.Read(make([]byte, 1))
					})
				}
				for _, at := range test.writes {
					time.AfterFunc(at, func() { c.Write([]byte("x")) })
				}
				time.Sleep(time.Hour)
				whys, at := s.list()
				require.Equal(t, []Reason{test.why}, whys)
				require.Equal(t, []time.Duration{test.at}, at)
			})
		})
	}
}

// The times of Reads that end at their own deadlines add up.
func TestPollingReadsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s timeouts
		c, _, _ := pipe(t, Limits{ReadIdle: 9*second + second/2, Idle: 12 * second}, s.hook(start))
		for {
			c.SetReadDeadline(time.Now().Add(second))
			_, err := c.Read(make([]byte, 1))
			if errors.Is(err, ErrTimeout) {
				break
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			time.Sleep(second) // does not count
		}
		_, at := s.list()
		require.Equal(t, []time.Duration{18*second + second/2}, at)
	})
}

// Time counts for Idle while a Write waits, although no Read does.
func TestBlockedWriteIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		inner, peer := net.Pipe()
		defer peer.Close()
		var s timeouts
		c := NewConn(inner, tw, Limits{Idle: 10 * second}, s.hook(start))
		go peer.Write([]byte("x"))
		c.Read(make([]byte, 1))
		time.Sleep(30 * second)
		_, err := c.Write([]byte("x"))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 40*second, time.Since(start))
	})
}
