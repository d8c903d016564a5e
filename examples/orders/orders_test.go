package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// tape records what an orders told, and when.
type tape struct {
	mu     sync.Mutex
	start  time.Time
	events []event
}

type event struct {
	at   time.Duration
	what string
	id   int
}

func (p *tape) record(what string) func(details) {
	return func(d details) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, event{time.Since(p.start), what, d.ID})
	}
}

func (p *tape) told() []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]event(nil), p.events...)
}

func newTestOrders(stock map[string]int, opts ...timingwheel.Option) (*orders, *tape) {
	p := &tape{start: time.Now()}
	tw := timingwheel.New(opts...)
	return newOrders(tw, payWithin, remindBefore, stock, p.record("reminded"), p.record("cancelled")), p
}

func TestPaymentStopsBoth(t *testing.T) {
	reminded := event{20 * time.Minute, "reminded", 1}
	cancelled := event{30 * time.Minute, "cancelled", 1}
	for name, c := range map[string]struct {
		pay   time.Duration // 0: never
		err   error
		want  []event
		stock int
	}{
		"never":                   {0, nil, []event{reminded, cancelled}, 5},
		"at once":                 {time.Nanosecond, nil, nil, 3},
		"just before reminder":    {20*time.Minute - 1, nil, nil, 3},
		"between":                 {25 * time.Minute, nil, []event{reminded}, 3},
		"just before the end":     {30*time.Minute - 1, nil, []event{reminded}, 3},
		"just after the end":      {30*time.Minute + 1, errCancelled, []event{reminded, cancelled}, 5},
		"when all is long over":   {24 * time.Hour, errCancelled, []event{reminded, cancelled}, 5},
		"a tick before, rounding": {30*time.Minute - time.Millisecond, nil, []event{reminded}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, told := newTestOrders(map[string]int{"mug": 5})
				d, err := s.place("ada", "mug", 2)
				require.NoError(t, err)
				require.Equal(t, details{1, "ada", "mug", 2, unpaid}, d)
				require.Equal(t, 3, s.inStock("mug"))
				require.Equal(t, 2, s.tw.Len())
				if c.pay > 0 {
					time.Sleep(c.pay)
					d, err := s.pay(1)
					require.ErrorIs(t, err, c.err)
					require.Zero(t, s.tw.Len(), "nothing is left pending")
					if err == nil {
						require.Equal(t, paid, d.State)
						_, err = s.pay(1)
						require.ErrorIs(t, err, errPaid)
					}
				}
				time.Sleep(48 * time.Hour)
				synctest.Wait()
				require.Equal(t, c.want, told.told())
				require.Equal(t, c.stock, s.inStock("mug"))
				require.Zero(t, s.tw.Len())
			})
		})
	}
}

// Both ways the last moment can go, step by step: the expiry has been handed over and
// has not begun.
func TestPaymentMeetsExpiry(t *testing.T) {
	handOver := func(t *testing.T) (s *orders, told *tape, expire func()) {
		handedOver := make(chan func(), 2)
		s, told = newTestOrders(map[string]int{"mug": 5}, timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
		_, err := s.place("ada", "mug", 2)
		require.NoError(t, err)
		time.Sleep(payWithin)
		synctest.Wait()
		remind := <-handedOver
		remind()
		return s, told, <-handedOver
	}
	t.Run("payment wins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, told, expire := handOver(t)
			d, err := s.pay(1)
			require.NoError(t, err)
			require.Equal(t, paid, d.State)
			expire()
			d, err = s.get(1)
			require.NoError(t, err)
			require.Equal(t, paid, d.State)
			require.Equal(t, 3, s.inStock("mug"))
			require.Len(t, told.told(), 1, "the reminder")
		})
	})
	t.Run("expiry wins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, told, expire := handOver(t)
			expire()
			d, err := s.pay(1)
			require.ErrorIs(t, err, errCancelled)
			require.Equal(t, cancelled, d.State)
			require.Equal(t, 5, s.inStock("mug"))
			require.Len(t, told.told(), 2)
		})
	})
	// After a suspend of the machine both are due at once, in any order.
	t.Run("reminder after expiry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			handedOver := make(chan func(), 2)
			s, told := newTestOrders(map[string]int{"mug": 5}, timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
			_, err := s.place("ada", "mug", 2)
			require.NoError(t, err)
			time.Sleep(payWithin)
			synctest.Wait()
			remind, expire := <-handedOver, <-handedOver
			expire()
			remind()
			require.Equal(t, []event{{payWithin, "cancelled", 1}}, told.told())
			require.Equal(t, 5, s.inStock("mug"))
		})
	})
}

// Many orders, each paid by two customers at once at the very instant of its expiry,
// beside customers who buy what comes back.
func TestHammer(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		var accepted, cancellations [n + 1]atomic.Int32
		tw := timingwheel.New()
		s := newOrders(tw, payWithin, remindBefore, map[string]int{"mug": n},
			func(details) {},
			func(d details) { cancellations[d.ID].Add(1) })
		for range n {
			_, err := s.place("ada", "mug", 1)
			require.NoError(t, err)
		}
		require.Zero(t, s.inStock("mug"))
		for id := 1; id <= n; id++ {
			for range 2 {
				go func() {
					time.Sleep(payWithin)
					switch _, err := s.pay(id); err {
					case nil:
						accepted[id].Add(1)
					case errPaid, errCancelled:
					default:
						panic(err)
					}
				}()
			}
		}
		time.Sleep(2 * payWithin)
		require.NoError(t, tw.Shutdown(context.Background()))
		won := 0
		for id := 1; id <= n; id++ {
			require.EqualValues(t, 1, accepted[id].Load()+cancellations[id].Load(), "order %d", id)
			won += int(accepted[id].Load())
			d, err := s.get(id)
			require.NoError(t, err)
			require.Equal(t, accepted[id].Load() == 1, d.State == paid)
		}
		require.Equal(t, n-won, s.inStock("mug"))
		require.Zero(t, tw.Len())
		t.Logf("%d of %d payments came first", won, n)
	})
}
