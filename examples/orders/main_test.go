package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), config{scale: 1800}, &out)
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	for _, line := range []string{
		"ada orders 2 x mug: order 1", "ada pays order 1", "shop cancels order 3 of cleo: 3 x mug back in stock",
		"cleo pays order 3 and is told: too late", "dan pays order", "40 customers pay for their posters", "the stock adds up",
	} {
		require.Contains(t, out.String(), line)
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, run(ctx, config{scale: 600}, io.Discard), context.Canceled)
}

func TestRunCannotListen(t *testing.T) {
	require.Error(t, run(context.Background(), config{scale: 1, addr: "127.0.0.1:nowhere"}, io.Discard))
}

// With -addr the program serves until it is interrupted.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out safeBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config{scale: 1, addr: "127.0.0.1:0"}, &out) }()
	var url string
	require.Eventually(t, func() bool {
		url = regexp.MustCompile(`http://[0-9.:]+`).FindString(out.String())
		return url != ""
	}, time.Minute, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(url+"/orders", "application/json", strings.NewReader(`{"customer": "ada", "item": "mug", "quantity": 2}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	cancel()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "2 timers were pending")
}

func TestHandler(t *testing.T) {
	s, _ := newTestOrders(map[string]int{"mug": 5})
	h := handler(s)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/orders", `{"customer": "ada", "item": "mug", "quantity": 2}`, 201, `{"id":1,"customer":"ada","item":"mug","quantity":2,"state":"unpaid"}`},
		{"GET", "/stock/mug", "", 200, `3`},
		{"GET", "/stock/hat", "", 200, `0`},
		{"POST", "/orders", `{"item": "mug", "quantity": 4}`, 409, `{"error":"out of stock"}`},
		{"POST", "/orders", `{"item": "hat", "quantity": 1}`, 404, `{"error":"no such item"}`},
		{"POST", "/orders", `{"item": "mug"}`, 400, `{"error":"quantity must be at least 1"}`},
		{"POST", "/orders", `mugs, please`, 400, ``},
		{"POST", "/orders/1/payment", "", 200, `{"id":1,"customer":"ada","item":"mug","quantity":2,"state":"paid"}`},
		{"POST", "/orders/1/payment", "", 409, `{"error":"the order is paid already"}`},
		{"POST", "/orders/2/payment", "", 404, `{"error":"no such order"}`},
		{"GET", "/orders/1", "", 200, `{"id":1,"customer":"ada","item":"mug","quantity":2,"state":"paid"}`},
		{"GET", "/orders/one", "", 404, `{"error":"no such order"}`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		require.Equal(t, c.status, w.Code, "%s %s %s", c.method, c.path, c.body)
		require.True(t, json.Valid(w.Body.Bytes()))
		if c.want != "" {
			require.JSONEq(t, c.want, w.Body.String())
		}
	}
	require.NoError(t, s.tw.Shutdown(context.Background()))
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	start := time.Now()
	at := func(minutes ...int) (instants []time.Time) {
		for _, m := range minutes {
			instants = append(instants, start.Add(time.Duration(m)*time.Minute))
		}
		return instants
	}
	mug := details{Customer: "ada", Item: "mug", Quantity: 2}
	for name, c := range map[string]struct {
		record record
		mugs   int
		wrong  string
	}{
		"paid":                    {record{accepted: 1, paid: at(25)[0], reminders: at(20)}, 3, ""},
		"paid late, but accepted": {record{accepted: 1, paid: at(31)[0], reminders: at(20)}, 3, ""},
		"cancelled":               {record{cancellations: at(30), refused: at(30)[0], reminders: at(20)}, 5, ""},
		"neither":                 {record{}, 3, "0 times"},
		"both":                    {record{accepted: 1, cancellations: at(30)}, 3, "2 times"},
		"paid twice":              {record{accepted: 2}, 1, "2 times"},
		"cancelled early":         {record{cancellations: []time.Time{at(30)[0].Add(-1)}}, 5, "cancelled 1ns early"},
		"reminded early":          {record{cancellations: at(30), reminders: []time.Time{at(20)[0].Add(-1)}}, 5, "reminded of 1ns early"},
		"reminded twice":          {record{cancellations: at(30), reminders: at(20, 20)}, 5, "reminded of 2 times"},
		"reminded after payment":  {record{accepted: 1, paid: at(19)[0], reminders: at(20)}, 3, "when it was paid"},
		"refused for no reason":   {record{accepted: 1, paid: at(19)[0], refused: at(20)[0]}, 3, "refused"},
		"stock not returned":      {record{cancellations: at(30)}, 3, "of mug there are 3"},
		"stock returned twice":    {record{cancellations: at(30)}, 7, "of mug there are 7"},
	} {
		t.Run(name, func(t *testing.T) {
			c.record.details, c.record.placing = mug, start
			other := &record{details: details{Item: "lamp", Quantity: 1}, placing: start, reminders: at(20), cancellations: at(30)}
			stock := goods()
			stock["mug"] = c.mugs
			err := judge(map[int]*record{1: &c.record, 2: other}, stock, payWithin, remindBefore)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
	require.ErrorContains(t, judge(nil, goods(), payWithin, remindBefore), "nobody was reminded")
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want config
	}{
		{nil, config{scale: storyScale}},
		{[]string{"-scale", "100"}, config{scale: 100}},
		{[]string{"-addr", ":80"}, config{scale: 1, addr: ":80"}},
		{[]string{"-addr", ":80", "-scale", "60"}, config{scale: 60, addr: ":80"}},
	} {
		cfg, err := parse(c.args, io.Discard)
		require.NoError(t, err)
		require.Equal(t, c.want, cfg)
	}
	for _, args := range [][]string{{"-scale", "-1"}, {"-scale", "NaN"}, {"-scale", "1e9"}, {"-scale", "fast"}, {"-nonsense"}, {"extra"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
		require.NotContains(t, err.Error(), "\n", "%v", args)
	}
	var help bytes.Buffer
	_, err := parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, help.String(), "-addr")
}

// safeBuffer is a bytes.Buffer that is written and read at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
