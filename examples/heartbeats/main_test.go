package main

import (
	"context"
	"net"
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
	err := program().Run(t.Context(), &out, "-scale", "8", "-clients", "1000")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "all is well")
	require.ErrorContains(t, program().Run(t.Context(), &out, "-clients", "3"), "between")
}

// TestServe uses the program as one does by hand.
func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out story.Buffer
	ended := make(chan error, 1)
	go func() { ended <- program().Run(ctx, &out, "-addr", "127.0.0.1:0", "-scale", "10") }()
	conn, err := net.Dial("udp", out.Await(t, `127[0-9.:]+`))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("7 10000 -1 x"))
	require.NoError(t, err)
	out.Await(t, "client 7 is suspected")
	_, err = conn.Write([]byte("7"))
	require.NoError(t, err)
	out.Await(t, "client 7 is back")
	interrupt()
	require.NoError(t, <-ended)
	require.Error(t, program().Run(ctx, &out, "-addr", "127.0.0.1:-1"))
}

// TestListen sends what is not a heartbeat.
func TestListen(t *testing.T) {
	got := make(chan []int, 10)
	at, stop, err := listen("", 10, func(clients []int, _ time.Time) { got <- append([]int{}, clients...) })
	require.NoError(t, err)
	from, err := net.Dial("udp", at)
	require.NoError(t, err)
	defer from.Close()
	for packet, want := range map[string][]int{
		"1 2\n3\r\n": {1, 2, 3},
		"":           {},
		"9 10 -1 x 99999999999999999999 \x00\xff 0": {9, 0},
	} {
		_, err := from.Write([]byte(packet))
		require.NoError(t, err)
		require.Equal(t, want, <-got)
	}
	require.NoError(t, stop())
}

// TestWitness has each kind of wrong verdict found.
func TestWitness(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, tc := range []struct {
		name string
		tell func(w *witness)
		want string
	}{
		{"right", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.mark([]int{0}, true)
			w.judge(verdict{0, true, at(1), at(6)})
		}, ""},
		{"early", func(w *witness) {
			w.heard([]int{0}, at(2))
			w.judge(verdict{0, true, at(2), at(6)})
		}, "1s early"},
		{"although it was heard", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.heard([]int{0}, at(2))
			w.heard([]int{0}, at(3))
			w.judge(verdict{0, true, at(1), at(6)})
		}, "although it was heard"},
		{"twice", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.judge(verdict{0, true, at(1), at(6)})
			w.judge(verdict{0, true, at(1), at(7)})
		}, "twice"},
		{"wrong at the end", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.mark([]int{0}, true)
		}, "dead true, suspected false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWitness(1, limit)
			tc.tell(w)
			if tc.want == "" {
				require.NoError(t, w.agreed())
			} else {
				require.ErrorContains(t, w.agreed(), tc.want)
			}
		})
	}
}
