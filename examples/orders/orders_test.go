package main

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newShop(tw *timingwheel.TimingWheel, mugs int, tell func(string, details)) *shop {
	return &shop{tw: tw, payWithin: payWithin, remindBefore: remindBefore, tell: tell,
		stock: map[string]int{"mug": mugs}, orders: make(map[int]*order)}
}

// TestShop pays an order at some moments of the fake clock, in real durations.
func TestShop(t *testing.T) {
	const reminded, cancelled = "20m0s reminded", "30m0s cancelled"
	for name, tc := range map[string]struct {
		pays  time.Duration
		want  []string
		stock int
	}{
		"at once":                  {0, nil, 3},
		"just before the reminder": {20*time.Minute - 1, nil, 3},
		"between":                  {25 * time.Minute, []string{reminded}, 3},
		"just before the expiry":   {30*time.Minute - 1, []string{reminded}, 3},
		"just after the expiry":    {30*time.Minute + 1, []string{reminded, cancelled}, 5},
		"a day later":              {24 * time.Hour, []string{reminded, cancelled}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events story.Notes
				tw := timingwheel.New()
				s := newShop(tw, 5, func(event string, d details) {
					require.Equal(t, 1, d.ID)
					events.Add("%s", event)
				})
				d, err := s.place("ada", "mug", 2)
				require.NoError(t, err)
				require.Equal(t, details{1, "ada", "mug", 2, "unpaid"}, d)
				for _, quantity := range []int{4, 0} {
					_, err = s.place("ben", "mug", quantity)
					require.ErrorIs(t, err, errNoStock)
				}
				time.Sleep(tc.pays)
				synctest.Wait()
				d, err = s.pay(1)
				require.Equal(t, tc.stock == 3, err == nil)
				require.Zero(t, tw.Len(), "both timers are stopped or have fired")
				_, err = s.pay(1)
				require.ErrorContains(t, err, "already "+d.State)
				_, err = s.pay(2)
				require.ErrorIs(t, err, errNoOrder)
				time.Sleep(48 * time.Hour)
				require.Equal(t, tc.want, events.Lines())
				require.Equal(t, tc.stock, s.stock["mug"])
			})
		})
	}
}

// TestLastMoment runs a payment and the two callbacks in each order. The callbacks were handed
// over and have not begun, as also happens when the machine was suspended.
func TestLastMoment(t *testing.T) {
	for order, want := range map[string]struct{ events, state string }{
		"pay remind expire": {"", "paid"},
		"remind pay expire": {"reminded", "paid"},
		"remind expire pay": {"reminded cancelled", "cancelled"},
		"expire remind pay": {"cancelled", "cancelled"},
	} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events []string
				handedOver := make(chan func(), 2)
				tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
				note := func(event string, _ details) { events = append(events, event) }
				s := newShop(tw, 5, note)
				s.place("ada", "mug", 2)
				steps := map[string]func(){"pay": func() { s.pay(1) }}
				steps["remind"], steps["expire"] = <-handedOver, <-handedOver
				for step := range strings.FieldsSeq(order) {
					steps[step]()
				}
				require.Equal(t, want.events, strings.Join(events, " "))
				require.Equal(t, want.state, s.orders[1].State)
				require.Equal(t, want.state == "paid", s.stock["mug"] == 3)
				require.Zero(t, tw.Len())
			})
		})
	}
}

// TestHammer has two customers pay each of many orders at the very instant of its expiry.
func TestHammer(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		settled, paid := make(map[int]int), 0
		settle := func(id, payments int) {
			mu.Lock()
			defer mu.Unlock()
			settled[id]++
			paid += payments
		}
		tw := timingwheel.New()
		s := newShop(tw, n, func(event string, d details) {
			if event == "cancelled" {
				settle(d.ID, 0)
			}
		})
		for i := range 2 * n {
			if i < n {
				s.place("ada", "mug", 1)
			}
			go func() {
				time.Sleep(payWithin)
				if d, err := s.pay(i%n + 1); err == nil {
					settle(d.ID, 1)
				}
			}()
		}
		time.Sleep(2 * payWithin)
		synctest.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
		for id := 1; id <= n; id++ {
			require.Equal(t, 1, settled[id], "order %d", id)
		}
		require.Equal(t, n-paid, s.stock["mug"])
	})
}
