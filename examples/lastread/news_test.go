package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNews has readers read at some moments of the fake clock, in real durations. One article
// appears after each read.
func TestNews(t *testing.T) {
	const h, ms = time.Hour, time.Millisecond
	type read struct {
		at     time.Duration
		reader string
	}
	for name, tc := range map[string]struct {
		reads []read
		want  []string
	}{
		"once":               {[]read{{0, "a"}}, []string{"2h0m0s a: 1 new"}},
		"several reads":      {[]read{{0, "a"}, {h, "a"}, {2 * h, "a"}, {2*h + ms, "a"}}, []string{"4h0m0.001s a: 1 new"}},
		"just in time":       {[]read{{0, "a"}, {2*h - ms, "a"}}, []string{"3h59m59.999s a: 1 new"}},
		"just too late":      {[]read{{0, "a"}, {2*h + ms, "a"}}, []string{"2h0m0s a: 1 new", "4h0m0.001s a: 1 new"}},
		"several readers":    {[]read{{0, "a"}, {h, "b"}, {h, "c"}, {2*h - ms, "c"}}, []string{"2h0m0s a: 4 new", "3h0m0s b: 3 new", "3h59m59.999s c: 1 new"}},
		"returns days later": {[]read{{0, "a"}, {240 * h, "a"}}, []string{"2h0m0s a: 1 new", "242h0m0s a: 1 new"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, notes, tw := time.Now(), story.NewNotes(), timingwheel.New()
				n := newNews(tw, quiet, func(reader string, unread []string) { notes.Add("%s: %d new", reader, len(unread)) })
				for _, r := range tc.reads {
					time.Sleep(time.Until(start.Add(r.at)))
					n.read(r.reader)
					n.publish()
				}
				time.Sleep(1000 * h)
				require.Equal(t, tc.want, notes.Lines())
				require.Zero(t, n.digests.Len()+tw.Len())
			})
		})
	}
}

// TestLastMoment has a reader return, leave, or find the server closing when his digest has been
// handed over and has not begun.
func TestLastMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		meets func(n *news)
		more  int // digests
	}{
		"read":  {func(n *news) { n.read("a") }, 1},
		"leave": {func(n *news) { n.leave("a") }, 0},
		"stop":  {func(n *news) { n.stop() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handedOver := make(chan func(), 1)
				tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
				mails := 0
				n := newNews(tw, quiet, func(string, []string) { mails++ })
				n.read("a")
				digest := <-handedOver
				tc.meets(n)
				digest()
				require.Equal(t, 1, mails, "for the reads before")
				time.Sleep(24 * time.Hour)
				for range tc.more {
					(<-handedOver)()
				}
				require.Equal(t, 1+tc.more, mails)
				require.Zero(t, n.digests.Len()+tw.Len()+len(handedOver))
			})
		})
	}
}

func TestLeaveAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		n := newNews(tw, quiet, func(reader string, _ []string) { t.Error("a digest to", reader) })
		for _, reader := range []string{"a", "b", "c"} {
			n.read(reader)
		}
		require.True(t, n.leave("b"))
		require.False(t, n.leave("b"))
		require.Equal(t, 2, n.digests.Len())
		require.ElementsMatch(t, []string{"a", "c"}, n.stop())
		require.Empty(t, n.stop())
		n.read("a")
		time.Sleep(24 * time.Hour)
		require.Zero(t, n.digests.Len()+tw.Len())
	})
}
