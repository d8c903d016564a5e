package netidle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests extensions of limits, to the tick.

// asked records the calls of extend.
type asked struct {
	mu    sync.Mutex
	start time.Time
	calls []string
}

// by returns an Option whose extend returns the answers, one for each n, and then 0.
func (a *asked) by(answers ...time.Duration) Option {
	a.start = time.Now()
	return WithExtend(func(_ *Conn, why Reason, n int) time.Duration {
		a.note(why, n)
		if n < len(answers) {
			return answers[n]
		}
		return 0
	})
}

// note returns how many calls there have been.
func (a *asked) note(why Reason, n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, fmt.Sprint(why, " ", n, " ", time.Since(a.start)))
	return len(a.calls)
}

func TestExtend(t *testing.T) {
	for _, test := range []struct {
		name    string
		limits  Limits
		answers times
		reads   times
		writes  times
		calls   []string
		why     Reason
		at      time.Duration
	}{
		{name: "refused", limits: Limits{ReadIdle: 60 * second},
			calls: []string{"read idle 0 1m0s"}, why: ReadIdle, at: 60 * second},
		{name: "a negative answer", limits: Limits{ReadIdle: 60 * second}, answers: times{-1},
			calls: []string{"read idle 0 1m0s"}, why: ReadIdle, at: 60 * second},
		{name: "a ping that is not answered", limits: Limits{ReadIdle: 60 * second},
			answers: times{10 * second, 20 * second},
			writes:  times{60 * second},
			calls:   []string{"read idle 0 1m0s", "read idle 1 1m10s", "read idle 2 1m30s"},
			why:     ReadIdle, at: 90 * second},
		{name: "a ping that is answered", limits: Limits{ReadIdle: 60 * second},
			answers: times{10 * second},
			reads:   times{65 * second},
			calls:   []string{"read idle 0 1m0s", "read idle 0 2m5s", "read idle 1 2m15s"},
			why:     ReadIdle, at: 135 * second},
		{name: "an extension that is longer than the limit", limits: Limits{ReadIdle: 10 * second},
			answers: times{time.Hour},
			reads:   times{40 * second},
			calls:   []string{"read idle 0 10s", "read idle 0 50s", "read idle 1 1h0m50s"},
			why:     ReadIdle, at: time.Hour + 50*second},
		{name: "writes", limits: Limits{WriteIdle: 60 * second}, answers: times{10 * second},
			writes: times{65 * second}, reads: times{70 * second},
			calls: []string{"write idle 0 1m0s", "write idle 0 2m5s", "write idle 1 2m15s"},
			why:   WriteIdle, at: 135 * second},
		{name: "both", limits: Limits{Idle: 60 * second}, answers: times{10 * second},
			writes: times{65 * second}, reads: times{70 * second},
			calls: []string{"idle 0 1m0s", "idle 0 2m10s", "idle 1 2m20s"}, why: Idle,
			at: 140 * second},
		{name: "lifetime", limits: Limits{Lifetime: 60 * second},
			answers: times{10 * second, 10 * second},
			writes:  times{65 * second}, reads: times{65 * second},
			calls: []string{"lifetime 0 1m0s", "lifetime 1 1m10s", "lifetime 2 1m20s"},
			why:   Lifetime, at: 80 * second},
		{name: "due", limits: Limits{Due: 60 * second}, answers: times{10 * second},
			writes: times{65 * second}, reads: times{65 * second},
			calls: []string{"overdue 0 1m0s", "overdue 1 1m10s"}, why: Overdue, at: 70 * second},
		{name: "two limits", limits: Limits{ReadIdle: 60 * second, Lifetime: 65 * second},
			answers: times{10 * second},
			calls:   []string{"read idle 0 1m0s", "lifetime 0 1m5s", "read idle 1 1m10s"},
			why:     ReadIdle, at: 70 * second},
		{name: "a nanosecond, rounded up to the tick", limits: Limits{ReadIdle: 60 * second},
			answers: times{1, 1},
			calls:   []string{"read idle 0 1m0s", "read idle 1 1m0.001s", "read idle 2 1m0.002s"},
			why:     ReadIdle, at: 60*second + 2*time.Millisecond},
		{name: "forever", limits: Limits{ReadIdle: 60 * second}, answers: times{math.MaxInt64},
			reads: times{10 * time.Hour},
			calls: []string{"read idle 0 1m0s", "read idle 0 10h1m0s"}},
	} {
		for _, expire := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, expire), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var a asked
					var s timeouts
					opts := []Option{a.by(test.answers...), s.hook(time.Now())}
					if expire {
						opts = append(opts, WithExpire())
					}
					c, peer, _ := pipe(t, test.limits, opts...)
					go func() {
						for b := make([]byte, 10); ; {
							if _, err := c.Read(b); err != nil {
								return
							}
						}
					}()
					for _, at := range test.reads {
						time.AfterFunc(at, func() { peer.Write([]byte("pong")) })
					}
					for _, at := range test.writes {
						time.AfterFunc(at, func() { c.Write([]byte("ping")) })
					}
					time.Sleep(20 * time.Hour)
					synctest.Wait()
					whys, ats := s.list()
					if expire { // a limit of the other direction may be reached afterwards
						a.calls, whys, ats = a.calls[:min(len(a.calls), len(test.calls))],
							whys[:min(len(whys), 1)], ats[:min(len(ats), 1)]
					}
					require.Equal(t, test.calls, a.calls)
					if test.why == 0 {
						require.Empty(t, whys)
					} else {
						require.Equal(t, []Reason{test.why}, whys)
						require.Equal(t, times{test.at}, ats)
					}
				})
			})
		}
	}
}

// extend may do these things while it runs.
func TestExtendReentrant(t *testing.T) {
	for _, test := range []struct {
		name   string
		extend func(c *Conn, peer net.Conn) time.Duration
		calls  []string
		why    Reason
		at     time.Duration
	}{
		{"refuses, but something came meanwhile", func(c *Conn, peer net.Conn) time.Duration {
			time.Sleep(5 * second)
			peer.Write([]byte("late"))
			time.Sleep(5 * second)
			return 0
		}, []string{"read idle 0 1m0s", "read idle 0 2m5s"}, ReadIdle, 125 * second},
		{"grants, but something came meanwhile", func(c *Conn, peer net.Conn) time.Duration {
			peer.Write([]byte("late"))
			time.Sleep(10 * second)
			return second
		}, []string{"read idle 0 1m0s", "read idle 0 2m0s"}, ReadIdle, 120 * second},
		{"takes longer than the limit, and something came meanwhile",
			func(c *Conn, peer net.Conn) time.Duration {
				peer.Write([]byte("late"))
				time.Sleep(200 * second)
				return second
			}, []string{"read idle 0 1m0s", "read idle 0 4m20s"}, ReadIdle, 260 * second},
		{"blocks beyond the lifetime", func(c *Conn, _ net.Conn) time.Duration {
			time.Sleep(2000 * second)
			return second
		}, []string{"read idle 0 1m0s", "lifetime 0 16m40s"}, Lifetime, 1000 * second},
		{"closes", func(c *Conn, _ net.Conn) time.Duration {
			c.Close()
			return second
		}, []string{"read idle 0 1m0s"}, 0, 0},
		{"closes and refuses", func(c *Conn, _ net.Conn) time.Duration {
			c.Close()
			return 0
		}, []string{"read idle 0 1m0s"}, 0, 0},
		{"lifts the limit and refuses", func(c *Conn, _ net.Conn) time.Duration {
			c.SetLimits(Limits{Lifetime: 500 * second})
			return 0
		}, []string{"read idle 0 1m0s", "lifetime 0 8m20s"}, Lifetime, 500 * second},
		{"makes the limit longer and refuses", func(c *Conn, _ net.Conn) time.Duration {
			c.SetLimits(Limits{ReadIdle: 90 * second})
			return 0
		}, []string{"read idle 0 1m0s"}, ReadIdle, 90 * second},
		{"makes the limit shorter and grants", func(c *Conn, _ net.Conn) time.Duration {
			c.SetLimits(Limits{ReadIdle: 20 * second})
			return 10 * second
		}, []string{"read idle 0 1m0s", "read idle 1 1m10s"}, ReadIdle, 70 * second},
		{"makes the limit longer and grants", func(c *Conn, _ net.Conn) time.Duration {
			c.SetLimits(Limits{ReadIdle: 90 * second})
			return 10 * second
		}, []string{"read idle 0 1m0s", "read idle 1 1m30s"}, ReadIdle, 90 * second},
		{"sets another limit that is over", func(c *Conn, _ net.Conn) time.Duration {
			c.SetLimits(Limits{Lifetime: 20 * second})
			time.Sleep(second)
			return 10 * second
		}, []string{"read idle 0 1m0s", "lifetime 0 1m0s"}, Lifetime, 60 * second},
		{"ends the goroutine", func(*Conn, net.Conn) time.Duration {
			runtime.Goexit()
			return second
		}, []string{"read idle 0 1m0s"}, ReadIdle, 60 * second},
		{"panics", func(*Conn, net.Conn) time.Duration {
			panic("extend")
		}, []string{"read idle 0 1m0s"}, ReadIdle, 60 * second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tw := timingwheel.New(timingwheel.WithPanicHandler(func(any, []byte) {}))
				var s timeouts
				a := asked{start: time.Now()}
				inner, peer := net.Pipe()
				c := NewConn(inner, tw, Limits{ReadIdle: 60 * second, Lifetime: 1000 * second},
					s.hook(a.start),
					WithExtend(func(c *Conn, why Reason, n int) time.Duration {
						if a.note(why, n) == 1 {
							return test.extend(c, peer)
						}
						return 0
					}))
				go func() {
					for b := make([]byte, 10); ; {
						if _, err := c.Read(b); err != nil {
							return
						}
					}
				}()
				time.Sleep(time.Hour)
				synctest.Wait()
				whys, ats := s.list()
				require.Equal(t, test.calls, a.calls)
				if test.why == 0 {
					require.Empty(t, whys)
				} else {
					require.Equal(t, []Reason{test.why}, whys)
					require.Equal(t, []time.Duration{test.at}, ats)
				}
				c.Close()
				peer.Close()
				require.Zero(t, tw.Len())
			})
		})
	}
}

// If SetLimits sets a limit again, it and the calls of extend count again from the beginning.
func TestExtendSetLimits(t *testing.T) {
	for why, limits := range map[Reason]Limits{
		ReadIdle: {ReadIdle: 60 * second}, WriteIdle: {WriteIdle: 60 * second},
		Idle: {Idle: 60 * second}, Overdue: {Due: 60 * second},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := asked{start: time.Now()}
			c, _, _ := pipe(t, limits, WithExtend(func(c *Conn, why Reason, n int) time.Duration {
				if a.note(why, n) > 1 {
					return 0
				}
				c.SetLimits(Limits{})
				c.SetLimits(limits)
				return 10 * second
			}))
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, ErrTimeout)
			synctest.Wait()
			require.Equal(t, []string{fmt.Sprint(why, " 0 1m0s"), fmt.Sprint(why, " 0 2m0s")},
				a.calls)
		})
	}
}

// Extensions remain in force if the wheel is stopped, before extend runs or while it does.
func TestExtendStoppedWheel(t *testing.T) {
	for _, stopAt := range []time.Duration{0, 30 * second, 62 * second, 70 * second} {
		synctest.Test(t, func(t *testing.T) {
			var a asked
			tw := timingwheel.New()
			time.AfterFunc(stopAt, tw.Stop)
			inner, peer := net.Pipe()
			defer peer.Close()
			c := NewConn(inner, tw, Limits{Idle: 60 * second}, a.by(),
				WithExtend(func(_ *Conn, why Reason, n int) time.Duration {
					a.note(why, n)
					time.Sleep(5 * second)
					return []time.Duration{10 * second, 0}[n]
				}))
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, ErrTimeout)
			require.Equal(t, 80*second, time.Since(a.start))
			synctest.Wait()
			require.Equal(t, []string{"idle 0 1m0s", "idle 1 1m15s"}, a.calls)
		})
	}
}

// Random reads and answers have the result of a model that goes from event to event.
func TestExtendRandom(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := time.Duration(1+random.IntN(20)) * second
		var reads []time.Duration
		for at := time.Duration(0); len(reads) < 20; {
			at += time.Duration(random.IntN(40000)) * time.Millisecond
			reads = append(reads, at+500*time.Microsecond) // not at the tick of a call
		}
		answer := func(n int) time.Duration { return time.Duration(3-n) * 4 * second }

		var want []string
		last, next := time.Duration(0), 0
		for n, at := 0, limit; ; {
			if next < len(reads) && reads[next] < at {
				last, n = reads[next], 0
				next++
				at = (last + limit + time.Millisecond - 1).Truncate(time.Millisecond)
				continue
			}
			want = append(want, fmt.Sprint(ReadIdle, " ", n, " ", at))
			by := answer(n)
			if by <= 0 {
				break
			}
			at += by
			n++
		}

		synctest.Test(t, func(t *testing.T) {
			var a asked
			c, peer, _ := pipe(t, Limits{ReadIdle: limit}, a.by(answer(0), answer(1), answer(2)))
			for _, at := range reads {
				time.AfterFunc(at, func() { peer.Write([]byte("x")) })
			}
			for b := make([]byte, 1); ; {
				if _, err := c.Read(b); err != nil {
					require.ErrorIs(t, err, ErrTimeout)
					break
				}
			}
			synctest.Wait()
			require.Equal(t, want, a.calls, "seed %d, limit %v, reads %v", seed, limit, reads)
		})
	}
}

// Many goroutines touch, set limits and extend them. There is one call of extend at a time, so it
// needs no lock, and no call comes before the limit or the extension has passed.
func TestHammerExtend(t *testing.T) {
	const limit = 2 * time.Millisecond
	tw := newWheel(t)
	var all sync.WaitGroup
	for range 20 {
		var calls int
		var answered time.Time
		inner, peer := net.Pipe()
		c := NewConn(inner, tw, Limits{ReadIdle: limit},
			WithExtend(func(_ *Conn, _ Reason, n int) time.Duration {
				if n > 0 && time.Since(answered) < limit/2 {
					t.Error("early")
				}
				if calls++; calls > 100 {
					return 0
				}
				answered = time.Now()
				return limit / 2
			}))
		for range 2 {
			all.Go(func() {
				for c.Reason() == 0 {
					switch rand.IntN(3) {
					case 0:
						c.TouchRead(time.Now())
					case 1:
						c.SetLimits(Limits{ReadIdle: limit,
							Idle: time.Duration(rand.IntN(2)) * time.Hour})
					}
					time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				}
				c.Close()
				peer.Close()
			})
		}
	}
	all.Wait()
}

func TestExtendNil(t *testing.T) {
	require.PanicsWithValue(t, "netidle: nil function to extend limits", func() { WithExtend(nil) })
}
