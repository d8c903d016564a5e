package main

import (
	"fmt"
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

// TestShop pays an order at some moments of the fake clock, in real durations.
func TestShop(t *testing.T) {
	const reminded, cancelled = "20m0s reminded", "30m0s cancelled"
	for name, tc := range map[string]struct {
		pays  time.Duration
		want  []string
		stock int
	}{
		"never":                      {48 * time.Hour, []string{reminded, cancelled}, 5},
		"at once":                    {0, nil, 3},
		"just before the reminder":   {20*time.Minute - 1, nil, 3},
		"between":                    {25 * time.Minute, []string{reminded}, 3},
		"just before the expiry":     {30*time.Minute - 1, []string{reminded}, 3},
		"a tick before the expiry":   {30*time.Minute - time.Millisecond, []string{reminded}, 3},
		"just after the expiry":      {30*time.Minute + 1, []string{reminded, cancelled}, 5},
		"a day after the expiry ran": {24 * time.Hour, []string{reminded, cancelled}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, tw := story.NewNotes(), timingwheel.New()
				s := newShop(tw, payWithin, remindBefore, map[string]int{"mug": 5}, func(event string, d details) {
					require.Equal(t, 1, d.ID)
					events.Add("%s", event)
				})
				d, err := s.place("ada", "mug", 2)
				require.NoError(t, err)
				require.Equal(t, details{1, "ada", "mug", 2, "unpaid"}, d)
				_, err = s.place("ben", "mug", 4)
				require.ErrorIs(t, err, errNoStock)
				_, err = s.place("ben", "mug", 0)
				require.ErrorIs(t, err, errNoStock)
				time.Sleep(tc.pays)
				synctest.Wait()
				d, err = s.pay(1)
				require.Equal(t, tc.stock == 3, err == nil)
				require.Zero(t, tw.Len(), "both timers are stopped or have fired")
				state := d.State
				d, err = s.pay(1)
				require.ErrorContains(t, err, "already "+state)
				_, err = s.pay(2)
				require.ErrorIs(t, err, errNoOrder)
				time.Sleep(48 * time.Hour)
				synctest.Wait()
				require.Equal(t, tc.want, events.Lines())
				require.Equal(t, tc.stock, s.stock["mug"])
				require.Equal(t, state, d.State)
			})
		})
	}
}

// TestLastMoment runs a payment and the two callbacks in each order. The callbacks have been
// handed over and have not begun, as also happens when the machine was suspended.
func TestLastMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		order string
		want  []string
		state string
	}{
		"payment first":                 {"pay remind expire", nil, "paid"},
		"payment before the expiry":     {"remind pay expire", []string{"reminded"}, "paid"},
		"expiry before the payment":     {"remind expire pay", []string{"reminded", "cancelled"}, "cancelled"},
		"reminder after its own expiry": {"expire remind pay", []string{"cancelled"}, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events []string
				handedOver := make(chan func(), 2)
				tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
				s := newShop(tw, payWithin, remindBefore, map[string]int{"mug": 5}, func(event string, _ details) { events = append(events, event) })
				s.place("ada", "mug", 2)
				remind, expire := <-handedOver, <-handedOver
				var first, second, third string
				fmt.Sscan(tc.order, &first, &second, &third)
				for _, step := range []string{first, second, third} {
					map[string]func(){"pay": func() { s.pay(1) }, "remind": remind, "expire": expire}[step]()
				}
				require.Equal(t, tc.want, events)
				require.Equal(t, tc.state, s.orders[1].State)
				require.Equal(t, map[string]int{"paid": 3, "cancelled": 5}[tc.state], s.stock["mug"])
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
		s := newShop(tw, payWithin, remindBefore, map[string]int{"mug": n}, func(event string, d details) {
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
		t.Logf("%d of %d payments came first", paid, n)
	})
}
