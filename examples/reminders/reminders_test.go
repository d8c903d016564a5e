package main

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCalendar uses a calendar on the fake clock for 48 hours, in real durations.
func TestCalendar(t *testing.T) {
	const h = time.Hour
	for name, tc := range map[string]struct {
		use  func(c *calendar, start time.Time)
		want []string
	}{
		"nearer than the lead: at once": {func(c *calendar, start time.Time) {
			time.Sleep(time.Minute)
			c.add("a", start.Add(21*time.Minute))
		}, []string{"1m0s a"}},
		"moved later, and earlier": {func(c *calendar, start time.Time) {
			c.add("a", start.Add(2*h))
			c.add("b", start.Add(9*h))
			time.Sleep(h)
			c.move(1, start.Add(5*h))
			c.move(2, start.Add(4*h))
		}, []string{"3h30m0s b", "4h30m0s a"}},
		"moved away and back": {func(c *calendar, start time.Time) {
			c.add("a", start.Add(2*h))
			c.move(1, start.Add(5*h))
			c.move(1, start.Add(2*h))
		}, []string{"1h30m0s a"}},
		"moved after its reminder: another": {func(c *calendar, start time.Time) {
			c.add("a", start.Add(2*h))
			time.Sleep(100 * time.Minute)
			c.move(1, start.Add(6*h))
		}, []string{"1h30m0s a", "5h30m0s a"}},
		"cancelled": {func(c *calendar, start time.Time) {
			c.add("a", start.Add(2*h))
			time.Sleep(h)
			c.cancel(1)
			_, err := c.cancel(1)
			fail(err, errUnknown)
			_, err = c.move(1, start.Add(3*h))
			fail(err, errUnknown)
		}, nil},
		"in the past": {func(c *calendar, start time.Time) {
			_, err := c.add("a", start)
			fail(err, errPast)
			c.add("b", start.Add(h))
			_, err = c.move(2, start)
			fail(err, errPast)
		}, []string{"30m0s b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes story.Notes
				start, tw := time.Now(), timingwheel.New()
				c := newCalendar(tw, reminderLead, func(m meeting) { notes.Add("%s", m.Title) })
				tc.use(c, start)
				time.Sleep(time.Until(start.Add(48 * h)))
				require.Equal(t, tc.want, notes.Lines())
				require.Zero(t, tw.Len())
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

func fail(got, want error) {
	if got != want {
		panic(fmt.Sprintf("%v instead of %v", got, want))
	}
}

// TestDesk answers a ticket after a while, on the fake clock, in real durations.
func TestDesk(t *testing.T) {
	const first, second = "24h0m0s level 1", "48h0m0s level 2"
	for after, want := range map[time.Duration][]string{
		23*time.Hour + 59*time.Minute: nil,
		47 * time.Hour:                {first},
		100 * time.Hour:               {first, second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var notes story.Notes
			tw := timingwheel.New()
			d := newDesk(tw, patience, func(t ticket) { notes.Add("level %d", t.Level) })
			d.add("ticket")
			time.Sleep(after)
			got, err := d.answer(1)
			require.NoError(t, err)
			require.Equal(t, len(want), got.Level)
			_, err = d.answer(1)
			require.ErrorIs(t, err, errUnknown)
			time.Sleep(100 * time.Hour)
			require.Equal(t, want, notes.Lines())
			require.Zero(t, tw.Len())
		})
	}
}

// TestRaces moves, cancels and answers at the moment at which the timers fire. Whatever comes
// first, what was sent is what the answers say.
func TestRaces(t *testing.T) {
	const each, soon = 200, 2 * time.Millisecond
	tw := timingwheel.New()
	var mu sync.Mutex
	sent, want := map[string]int{}, map[string]int{}
	note := func(m map[string]int, n int, format string, id int) {
		mu.Lock()
		defer mu.Unlock()
		m[fmt.Sprintf(format, id)] += n
	}
	c := newCalendar(tw, time.Hour, func(m meeting) { note(sent, 1, "meeting %d", m.ID) })
	d := newDesk(tw, soon, func(t ticket) { note(sent, 1, "ticket %d", t.ID) })
	var callers sync.WaitGroup
	for i := range each {
		callers.Go(func() {
			m, err := c.add("m", time.Now().Add(time.Hour+soon))
			assert.NoError(t, err)
			time.Sleep(soon)
			if i%2 == 0 {
				m, err = c.cancel(m.ID)
			} else {
				m, err = c.move(m.ID, time.Now().Add(2*time.Hour))
			}
			assert.NoError(t, err)
			note(want, m.Reminders, "meeting %d", m.ID)
		})
		callers.Go(func() {
			k := d.add("k")
			time.Sleep(soon)
			k, err := d.answer(k.ID)
			assert.NoError(t, err)
			note(want, k.Level, "ticket %d", k.ID)
		})
	}
	callers.Wait()
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Len(t, want, 2*each)
	for what, n := range want {
		require.Equal(t, n, sent[what], what)
	}
}

// TestStaleCalls makes the calls of timers for which Stop came too late.
func TestStaleCalls(t *testing.T) {
	tw, sent := timingwheel.New(), 0
	c := newCalendar(tw, time.Minute, func(meeting) { sent++ })
	a, _ := c.add("a", time.Now().Add(time.Hour))
	c.move(1, time.Now().Add(2*time.Hour))
	c.move(1, a.Start)
	require.Equal(t, 1, tw.Len(), "the timers of former starts are stopped")
	for moves, want := range []int{0, 0, 0, 1} {
		c.remindOf(1, moves)
		require.Equal(t, want, sent)
	}
	d := newDesk(tw, time.Hour, func(ticket) { sent++ })
	d.add("k")
	k := d.open[1]
	d.raise(k)
	d.answer(1)
	d.raise(k)
	require.Equal(t, 2, sent)
	require.NoError(t, tw.Shutdown(t.Context()))
}
