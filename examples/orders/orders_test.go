package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a test in a bubble, with a shop whose jobs are in memory.
func run(t *testing.T, test func(t *testing.T, s *shop)) {
	synctest.Test(t, func(t *testing.T) {
		book, err := openBook(filepath.Join(t.TempDir(), "book"))
		require.NoError(t, err)
		s := newShop(jobqueue.NewMemory(), book, payWithin)
		end := story.Background(s.jobs.Run)
		test(t, s)
		require.NoError(t, end())
		require.NoError(t, s.jobs.Close())
		require.NoError(t, book.close())
	})
}

// TestShop pays an order at some moments of the fake clock.
func TestShop(t *testing.T) {
	for name, tc := range map[string]struct {
		pays time.Duration
		want string
	}{
		"at once":                {0, paid},
		"just before the expiry": {payWithin - 1, paid},
		"just after the expiry":  {payWithin + 1, cancelled},
		"a day later":            {24 * time.Hour, cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *shop) {
				began := time.Now()
				o, err := s.place(t.Context(), "mug")
				require.NoError(t, err)
				require.Equal(t, order{o.ID, "mug", unpaid, began.Add(payWithin), time.Time{}}, o)
				time.Sleep(tc.pays)
				synctest.Wait()
				_, err = s.pay(t.Context(), o.ID)
				require.Equal(t, tc.want == cancelled, errors.Is(err, errSettled))
				_, err = s.pay(t.Context(), o.ID)
				require.Equal(t, tc.want == cancelled, errors.Is(err, errSettled), "again")
				_, err = s.pay(t.Context(), "other")
				require.ErrorIs(t, err, errNoOrder)
				time.Sleep(48 * time.Hour)
				after := min(tc.pays, payWithin)
				require.Equal(t, []order{{o.ID, "mug", tc.want, o.Expires, began.Add(after)}},
					s.book.all())
				stats, err := s.jobs.Stats(t.Context())
				require.NoError(t, err)
				require.Equal(t, tc.want == cancelled, stats.Queues[0].Delivered == 1)
				require.Zero(t, stats.Queues[0].Delayed)
			})
		})
	}
}

// TestHammer has two customers pay each of many orders at the very instant of its expiry. Each
// order has one end, and both customers and the book agree on it.
func TestHammer(t *testing.T) {
	const n = 200
	run(t, func(t *testing.T, s *shop) {
		var mu sync.Mutex
		told := make(map[string][]bool)
		var customers sync.WaitGroup
		for range n {
			o, err := s.place(t.Context(), "mug")
			require.NoError(t, err)
			for range 2 {
				customers.Go(func() {
					time.Sleep(time.Until(o.Expires))
					_, err := s.pay(t.Context(), o.ID)
					mu.Lock()
					defer mu.Unlock()
					told[o.ID] = append(told[o.ID], err == nil)
				})
			}
		}
		customers.Wait()
		time.Sleep(time.Hour)
		all := s.book.all()
		require.Len(t, all, n)
		for _, o := range all {
			require.False(t, o.Settled.Before(o.Expires))
			was := o.State == paid
			require.Equal(t, []bool{was, was}, told[o.ID], o.State)
		}
	})
}

// TestOrphan: the shop died between the job and the order.
func TestOrphan(t *testing.T) {
	run(t, func(t *testing.T, s *shop) {
		_, err := s.jobs.Add(t.Context(), expiry, []byte("no such order"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		stats, err := s.jobs.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.Queues[0].Acked)
		require.Empty(t, s.book.all())
	})
}

// TestBook opens a book whose last line a crash has cut at any byte.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	b, err := openBook(path)
	require.NoError(t, err)
	expires := time.Now().Round(0).UTC()
	require.NoError(t, b.add(order{ID: "a", Item: "mug", State: unpaid, Expires: expires}))
	require.NoError(t, b.add(order{ID: "b", Item: "mug", State: unpaid, Expires: expires}))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = b.settle("a", paid, expires)
	require.NoError(t, err)
	require.NoError(t, b.close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := len(before); cut <= len(whole); cut++ {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		b, err := openBook(path)
		require.NoError(t, err)
		_, err = b.settle("a", cancelled, expires)
		require.Equal(t, cut >= len(whole)-1, errors.Is(err, errSettled), "%d", cut)
		require.NoError(t, b.add(order{ID: "c", State: unpaid}))
		require.NoError(t, b.close())
		again, err := openBook(path)
		require.NoError(t, err)
		require.Equal(t, b.orders, again.orders)
		require.Len(t, again.orders, 3)
		require.NoError(t, again.close())
	}
}

func TestHTTP(t *testing.T) {
	run(t, func(t *testing.T, s *shop) {
		ask := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			return w
		}
		require.Equal(t, http.StatusOK, ask("POST", "/orders?item=mug").Code)
		o := s.book.all()[0]
		require.Equal(t, "mug", o.Item)
		require.Equal(t, http.StatusNotFound, ask("POST", "/orders/x/payment").Code)
		require.Contains(t, ask("GET", "/orders").Body.String(), o.ID)
		time.Sleep(payWithin + time.Second)
		require.Equal(t, http.StatusConflict, ask("POST", "/orders/"+o.ID+"/payment").Code)
	})
}
