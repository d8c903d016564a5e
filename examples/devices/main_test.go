package main

import (
	"os"
	"path/filepath"
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
	err := program().Run(t.Context(), &out, "-scale", "40000")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "all is well")
}

func TestList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "house.txt")
	require.NoError(t, os.WriteFile(file, []byte("0 8 mon lamp on\n0 9 mon fan off # comment"), 0o600))
	var out story.Buffer
	require.NoError(t, program().Run(t.Context(), &out, "-table", file))
	require.Regexp(t, `Mon 20.* 08:00 .*  lamp on\n`, out.String())
	require.Regexp(t, `Mon 20.* 09:00 .*  fan off\n`, out.String())
	require.NoError(t, os.WriteFile(file, []byte("0 25 mon lamp on"), 0o600))
	require.ErrorContains(t, program().Run(t.Context(), &out, "-table", file), "line 1")
	require.ErrorIs(t, program().Run(t.Context(), &out, "-table", file+"x"), os.ErrNotExist)
}

// TestInStory goes through a table on scales that do not divide well: no time is
// left out, and none comes twice.
func TestInStory(t *testing.T) {
	tab, err := parseTable("*/7 * * x on")
	require.NoError(t, err)
	for _, scale := range []float64{1, 1.1, 3, 7.7, 12000, 99999.9} {
		opening := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
		c := story.NewClock(opening, scale)
		require.True(t, inStory{c, tab, opening}.Next(c.RealAt(opening)).IsZero())
		at, want := c.RealAt(opening), opening
		for range 5000 {
			at, want = inStory{c, tab, time.Time{}}.Next(at), tab.Next(want)
			require.Equal(t, c.RealAt(want), at, "scale %v", scale)
		}
	}
	require.True(t, inStory{story.NewClock(time.Now(), 2), table(nil), time.Time{}}.Next(time.Now()).IsZero())
}

// The judgement must not only pass what is right: a plug that somebody has switched by
// hand, and one that was not switched at all.
func TestJudge(t *testing.T) {
	s := newNight(story.NewDiary(new(story.Buffer), story.NewClock(on(0, 17, 30), 1), time.TimeOnly))
	for name, asks := range asked {
		p := s.plugs[name]
		for _, a := range asks {
			s.done[name] = append(s.done[name], report{name, order{a.at, a.on, 1}, nil, false})
			if p.on != a.on {
				p.on = a.on
				p.changes = append(p.changes, change{s.RealAt(a.at), a.on})
			}
		}
	}
	require.NoError(t, s.judge())
	fan := s.plugs["fan"]
	fan.changes[0].at = fan.changes[0].at.Add(-1)
	require.ErrorContains(t, s.judge(), "fan was switched 1ns early")
	fan.changes = fan.changes[:1]
	require.ErrorContains(t, s.judge(), "fan was switched 1 times and not 2 times")
	delete(s.done, "boiler")
	require.ErrorContains(t, s.judge(), "boiler: 0 orders were settled and not 3")
}
