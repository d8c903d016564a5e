package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNews has readers read at some moments of the fake clock, in real durations. One article
// appears after each read.
func TestNews(t *testing.T) {
	for name, tc := range map[string]struct{ reads, want string }{
		"several reads": {"0s a, 1h a, 2h a, 2h0m0.001s a", "4h0m0.001s a: 1 new"},
		"just in time":  {"0s a, 1h59m59.999s a", "3h59m59.999s a: 1 new"},
		"just too late": {"0s a, 2h0m0.001s a", "2h0m0s a: 1 new, 4h0m0.001s a: 1 new"},
		"several readers": {"0s a, 1h b, 1h c, 1h59m59.999s c",
			"2h0m0s a: 4 new, 3h0m0s b: 3 new, 3h59m59.999s c: 1 new"},
		"returns days later": {"0s a, 240h a", "2h0m0s a: 1 new, 242h0m0s a: 1 new"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes story.Notes
				start, tw := time.Now(), timingwheel.New()
				n := newNews(tw, quiet, func(reader string, unread []string) {
					notes.Add("%s: %d new", reader, len(unread))
				})
				for read := range strings.SplitSeq(tc.reads, ", ") {
					var at, reader string
					fmt.Sscan(read, &at, &reader)
					after, err := time.ParseDuration(at)
					require.NoError(t, err)
					time.Sleep(time.Until(start.Add(after)))
					n.read(reader)
					n.publish()
				}
				time.Sleep(1000 * time.Hour)
				require.Equal(t, tc.want, strings.Join(notes.Lines(), ", "))
				require.Zero(t, n.digests.Len()+tw.Len())
			})
		})
	}
}

// TestLastMoment has a reader read or leave, or the server close, when the digest was handed over
// and has not begun.
func TestLastMoment(t *testing.T) {
	for name, more := range map[string]int{"read": 1, "leave": 0, "stop": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handedOver := make(chan func(), 1)
				tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
				mails := 0
				n := newNews(tw, quiet, func(string, []string) { mails++ })
				n.read("a")
				digest := <-handedOver
				map[string]func(){
					"read":  func() { n.read("a") },
					"leave": func() { n.leave("a") },
					"stop":  func() { n.stop() },
				}[name]()
				digest()
				require.Equal(t, 1, mails, "for the reads before")
				time.Sleep(24 * time.Hour)
				for range more {
					(<-handedOver)()
				}
				require.Equal(t, 1+more, mails)
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
		require.ElementsMatch(t, []string{"a", "c"}, n.stop())
		require.Empty(t, n.stop())
		n.read("a")
		time.Sleep(24 * time.Hour)
		require.Zero(t, n.digests.Len()+tw.Len())
	})
}
