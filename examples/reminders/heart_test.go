package main

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// notes are what a heart says and how long after the beginning.
type notes struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (n *notes) take(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf("%v ", time.Since(n.began))+fmt.Sprintf(format, args...))
}

// TestCalendar uses the calendar on the fake clock, in real durations.
func TestCalendar(t *testing.T) {
	for _, tc := range []struct {
		name string
		use  func(c *calendar, at func(time.Duration) time.Time)
		want []string
		left int // meetings at the end
	}{
		{"half an hour before", func(c *calendar, at func(time.Duration) time.Time) {
			c.add("a", at(26*time.Hour), nil)
		}, []string{"25h30m0s a"}, 0},
		{"nearer than the lead: at once", func(c *calendar, at func(time.Duration) time.Time) {
			time.Sleep(time.Minute)
			c.add("a", at(21*time.Minute), nil)
		}, []string{"1m0s a"}, 0},
		{"moved later, and earlier", func(c *calendar, at func(time.Duration) time.Time) {
			a, _ := c.add("a", at(2*time.Hour), nil)
			b, _ := c.add("b", at(9*time.Hour), nil)
			time.Sleep(time.Hour)
			c.move(a.ID, at(5*time.Hour))
			c.move(b.ID, at(4*time.Hour))
		}, []string{"3h30m0s b", "4h30m0s a"}, 0},
		{"moved away and back", func(c *calendar, at func(time.Duration) time.Time) {
			a, _ := c.add("a", at(2*time.Hour), nil)
			c.move(a.ID, at(5*time.Hour))
			c.move(a.ID, at(2*time.Hour))
		}, []string{"1h30m0s a"}, 0},
		{"moved after its reminder: another", func(c *calendar, at func(time.Duration) time.Time) {
			a, _ := c.add("a", at(2*time.Hour), nil)
			time.Sleep(100 * time.Minute)
			c.move(a.ID, at(6*time.Hour))
		}, []string{"1h30m0s a", "5h30m0s a"}, 0},
		{"cancelled", func(c *calendar, at func(time.Duration) time.Time) {
			a, _ := c.add("a", at(2*time.Hour), nil)
			time.Sleep(time.Hour)
			c.cancel(a.ID)
		}, nil, 0},
		{"not yet started, still known", func(c *calendar, at func(time.Duration) time.Time) {
			c.add("a", at(48*time.Hour+time.Nanosecond), nil)
		}, []string{"47h30m0.001s a"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wheel := timingwheel.New()
				d := &notes{began: time.Now()}
				c := newCalendar(wheel, reminderLead, func(m meeting) { d.take("%s", m.Title) })
				tc.use(c, d.began.Add)
				time.Sleep(time.Until(d.began.Add(48 * time.Hour)))
				synctest.Wait()
				require.Equal(t, tc.want, d.lines)
				require.Len(t, c.meetings, tc.left)
				require.NoError(t, wheel.Shutdown(t.Context()))
			})
		})
	}
}

func TestCalendarRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheel := timingwheel.New()
		c := newCalendar(wheel, reminderLead, func(meeting) {})
		_, err := c.add("a", time.Now(), nil)
		require.ErrorIs(t, err, errPast)
		m, err := c.add("a", time.Now().Add(time.Hour), nil)
		require.NoError(t, err)
		_, err = c.move(m.ID, time.Now())
		require.ErrorIs(t, err, errPast)
		time.Sleep(2 * time.Hour)
		_, err = c.move(m.ID, time.Now().Add(time.Hour))
		require.ErrorIs(t, err, errUnknown, "it is over")
		_, err = c.cancel(m.ID)
		require.ErrorIs(t, err, errUnknown)
		require.Zero(t, wheel.Len())
	})
}

// TestDesk lets a ticket go unanswered, and answers others, on the fake clock.
func TestDesk(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer time.Duration // 0: never
		want   []string
		level  int
	}{
		{"never answered", 0, []string{"24h0m0s ticket at level 1", "48h0m0s ticket at level 2"}, 2},
		{"within the day", 23*time.Hour + 59*time.Minute, nil, 0},
		{"on the second day", 47 * time.Hour, []string{"24h0m0s ticket at level 1"}, 1},
		{"on the third day", 49 * time.Hour, []string{"24h0m0s ticket at level 1", "48h0m0s ticket at level 2"}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wheel := timingwheel.New()
				notes := &notes{began: time.Now()}
				d := newDesk(wheel, patience, func(t ticket) { notes.take("%s at level %d", t.Subject, t.Level) })
				opened := d.add("ticket")
				if tc.answer > 0 {
					time.Sleep(tc.answer)
					got, err := d.answer(opened.ID)
					require.NoError(t, err)
					require.Equal(t, tc.level, got.Level)
					_, err = d.answer(opened.ID)
					require.ErrorIs(t, err, errUnknown)
				}
				time.Sleep(100 * time.Hour)
				synctest.Wait()
				require.Equal(t, tc.want, notes.lines)
				require.Zero(t, wheel.Len())
				require.NoError(t, wheel.Shutdown(t.Context()))
			})
		})
	}
}

// TestRaces moves, cancels and answers at the very moment at which the timers
// fire. However a race ends, what was sent has to be what the answers say.
func TestRaces(t *testing.T) {
	const each = 200
	wheel := timingwheel.New()
	var mu sync.Mutex
	reminders, levels := map[int]int{}, map[int]int{}
	sent := func(m map[int]int, id int) {
		mu.Lock()
		defer mu.Unlock()
		m[id]++
	}
	c := newCalendar(wheel, time.Hour, func(m meeting) { sent(reminders, m.ID) })
	d := newDesk(wheel, 2*time.Millisecond, func(t ticket) { sent(levels, t.ID) })

	wantReminders, wantLevels := map[int]int{}, map[int]int{}
	var callers sync.WaitGroup
	note := func(m map[int]int, id, n int) {
		mu.Lock()
		defer mu.Unlock()
		m[id] = n
	}
	for i := range each {
		callers.Go(func() {
			m, err := c.add("m", time.Now().Add(time.Hour+2*time.Millisecond), nil)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(2 * time.Millisecond)
			if i%2 == 0 {
				m, err = c.cancel(m.ID)
			} else {
				m, err = c.move(m.ID, time.Now().Add(2*time.Hour))
			}
			if err != nil {
				t.Error(err)
			}
			note(wantReminders, m.ID, m.Reminders)
		})
		callers.Go(func() {
			k := d.add("k")
			time.Sleep(2 * time.Millisecond)
			k, err := d.answer(k.ID)
			if err != nil {
				t.Error(err)
			}
			note(wantLevels, k.ID, k.Level)
		})
	}
	callers.Wait()
	require.NoError(t, wheel.Shutdown(t.Context()))
	for id := 1; id <= each; id++ {
		require.Equal(t, wantReminders[id], reminders[id], "meeting %d", id)
		require.Equal(t, wantLevels[id], levels[id], "ticket %d", id)
	}
	require.Len(t, wantReminders, each)
	require.Len(t, wantLevels, each)
}

// TestStaleReminder delivers the call of a timer that Stop came too late for,
// which no race can be relied upon to bring about.
func TestStaleReminder(t *testing.T) {
	wheel := timingwheel.New()
	var sent []int
	c := newCalendar(wheel, time.Minute, func(m meeting) { sent = append(sent, m.ID) })
	a, err := c.add("a", time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	_, err = c.move(a.ID, time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	_, err = c.move(a.ID, a.Start)
	require.NoError(t, err)
	require.Equal(t, 1, wheel.Len(), "the timers of former starts are stopped")
	c.remindOf(a.ID, 0)
	c.remindOf(a.ID, 1)
	require.Empty(t, sent)
	c.remindOf(a.ID, 2)
	require.Equal(t, []int{a.ID}, sent)
	c.forget(a.ID, 1)
	require.Len(t, c.meetings, 1)

	var risen []ticket
	d := newDesk(wheel, time.Hour, func(t ticket) { risen = append(risen, t) })
	d.add("k")
	k := d.open[1]
	d.rise(k)
	require.Len(t, risen, 1)
	_, err = d.answer(1)
	require.NoError(t, err)
	d.rise(k)
	require.Len(t, risen, 1)
	require.NoError(t, wheel.Shutdown(t.Context()))
}

// TestHub drops a subscriber who does not read, and keeps the others.
func TestHub(t *testing.T) {
	h := newHub()
	slow, quick := h.join("slow"), h.join("quick")
	for range backlog + 1 {
		h.send(event{Kind: "push"})
		<-quick.events
	}
	n := 0
	for range slow.events {
		n++
	}
	require.Equal(t, backlog, n)
	h.send(event{Kind: "reminder"}, "slow")
	require.Empty(t, quick.events)
	h.leave(slow)
	h.leave(quick)
	_, open := <-quick.events
	require.False(t, open)
	h.send(event{Kind: "push"})
}
