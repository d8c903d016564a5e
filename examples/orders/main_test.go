package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStory plays the whole story over real sockets.
func TestStory(t *testing.T) {
	var out story.Buffer
	err := program.Run(t.Context(), &out, "-scale", "1800")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "the stock adds up")
}

// TestServe uses the program as one does by hand.
func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out story.Buffer
	ended := make(chan error, 1)
	go func() { ended <- program.Run(ctx, &out, "-addr", "127.0.0.1:0") }()
	shop := story.NewClient(out.Await(t, "http://[0-9.:]+"))
	defer shop.Close()
	mugs := func(n int, s state) details { return details{1, "ada", "mug", n, s} }
	for _, c := range []struct {
		method, path string
		in           any
		code         int
		want         details
	}{
		{"POST", "/orders", mugs(2, ""), 200, mugs(2, unpaid)},
		{"POST", "/orders", mugs(4, ""), 409, details{}},
		{"POST", "/orders", details{Item: "hat", Quantity: 1}, 404, details{}},
		{"POST", "/orders", mugs(0, ""), 400, details{}},
		{"POST", "/orders", "mugs, please", 400, details{}},
		{"POST", "/orders/1/payment", nil, 200, mugs(2, paid)},
		{"POST", "/orders/1/payment", nil, 409, details{}},
		{"GET", "/orders/1", nil, 200, mugs(2, paid)},
		{"GET", "/orders/one", nil, 404, details{}},
		{"POST", "/orders", mugs(1, ""), 200, details{2, "ada", "mug", 1, unpaid}},
	} {
		var got details
		err := shop.Call(ctx, c.method, c.path, c.in, &got)
		if c.code == http.StatusOK {
			require.NoError(t, err)
		} else {
			require.True(t, story.Refused(err, c.code), "%s %s: %v", c.method, c.path, err)
		}
		require.Equal(t, c.want, got)
	}
	var left int
	require.NoError(t, shop.Call(ctx, "GET", "/stock/mug", nil, &left))
	require.Equal(t, 2, left)
	interrupt()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "2 timers were pending")
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	start := time.Now()
	at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
	early := func(minute int) []time.Time { return []time.Time{at(minute).Add(-1)} }
	reminded, cancelled := []time.Time{at(20)}, []time.Time{at(30)}
	for name, c := range map[string]struct {
		customer customer
		mugs     int
		wrong    string
	}{
		"paid":                   {customer{paid: at(25), reminded: reminded}, 3, ""},
		"paid late, if accepted": {customer{paid: at(31), reminded: reminded}, 3, ""},
		"cancelled":              {customer{cancelled: cancelled, reminded: reminded}, 5, ""},
		"neither":                {customer{}, 5, "paid 0 times and was cancelled 0 times"},
		"both":                   {customer{paid: at(30), cancelled: cancelled}, 3, "paid 1 times and was cancelled 1 times"},
		"cancelled early":        {customer{cancelled: early(30)}, 5, "cancelled 1ns early"},
		"reminded early":         {customer{cancelled: cancelled, reminded: early(20)}, 5, "reminded 1ns early"},
		"reminded after payment": {customer{paid: at(19), reminded: reminded}, 3, "after paying"},
		"stock not returned":     {customer{cancelled: cancelled}, 3, "of mug there are 3"},
	} {
		t.Run(name, func(t *testing.T) {
			c.customer.item, c.customer.quantity, c.customer.placing = "mug", 2, start
			stock := goods()
			stock["mug"] = c.mugs
			err := judge(map[string]*customer{"ada": &c.customer}, stock, 0, story.NewClock(start, 1))
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
}
