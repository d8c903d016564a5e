package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary notes what a heart says and how long after the beginning.
type diary struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v ", time.Since(d.began))+fmt.Sprintf(format, args...))
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines
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
				d := &diary{began: time.Now()}
				c := newCalendar(wheel, reminderLead, func(m meeting) { d.note("%s", m.Title) })
				tc.use(c, d.began.Add)
				time.Sleep(time.Until(d.began.Add(48 * time.Hour)))
				synctest.Wait()
				require.Equal(t, tc.want, d.all())
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
				notes := &diary{began: time.Now()}
				d := newDesk(wheel, patience, func(t ticket) { notes.note("%s at level %d", t.Subject, t.Level) })
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
				require.Equal(t, tc.want, notes.all())
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
	h.close()
	h.close()
	_, open := <-quick.events
	require.False(t, open)
	_, open = <-h.join("late").events
	require.False(t, open)
}

func TestStoryClock(t *testing.T) {
	for _, scale := range []float64{1, 3, 7.7, 21600, 1e6} {
		c := newStoryClock(opening, scale)
		for _, d := range []time.Duration{0, time.Minute, 29 * time.Hour, 1000*time.Hour + 1} {
			real := c.real(opening.Add(d))
			require.False(t, c.story(real).Before(opening.Add(d)), "scale %v, %v", scale, d)
			require.InDelta(t, float64(d)/scale, float64(real.Sub(c.began)), 1)
		}
	}
	// In real time to the nanosecond, as meetings may be years ahead.
	c, ahead := newStoryClock(opening, 1), 50000*time.Hour+1
	require.Equal(t, ahead, c.duration(ahead))
	require.Equal(t, opening.Add(ahead), c.story(c.real(opening.Add(ahead))))
}

// TestRun plays the whole story over real sockets.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out, 50000, 40))
	t.Logf("\n%s", &out)
	require.Contains(t, out.String(), "All is well")
	require.Contains(t, out.String(), "first of 40 subscribers")
}

// TestServe uses the program as one does by hand.
func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	out := &diary{}
	ended := make(chan error)
	go func() { ended <- serve(ctx, out, "127.0.0.1:0") }()
	defer func() {
		interrupt()
		require.NoError(t, <-ended)
	}()
	var url string
	require.Eventually(t, func() bool {
		for _, line := range out.all() {
			if _, rest, ok := strings.Cut(line, "serving at "); ok {
				url, _, _ = strings.Cut(rest, ",")
			}
		}
		return url != ""
	}, 30*time.Second, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, tc := range []struct {
		name, method, path, body string
		want                     int
	}{
		{"a meeting", "POST", "/meetings", `{"title":"a","with":["anna"],"start":"2099-01-01T10:00:00+01:00"}`, 200},
		{"moved", "POST", "/meetings/1/move", `{"start":"2098-01-01T10:00:00+01:00"}`, 200},
		{"moved into the past", "POST", "/meetings/1/move", `{"start":"1998-01-01T10:00:00+01:00"}`, 409},
		{"without a start", "POST", "/meetings", `{"title":"a","with":["anna"]}`, 409},
		{"without a title", "POST", "/meetings", `{}`, 400},
		{"not JSON", "POST", "/meetings", `hello`, 400},
		{"endless", "POST", "/meetings", `{"title":"` + strings.Repeat("x", maxBody) + `"}`, 400},
		{"cancelled", "DELETE", "/meetings/1", ``, 200},
		{"cancelled again", "DELETE", "/meetings/1", ``, 404},
		{"no number", "DELETE", "/meetings/x", ``, 404},
		{"a ticket", "POST", "/tickets", `{"subject":"a"}`, 200},
		{"answered", "POST", "/tickets/1/answer", ``, 200},
		{"answered again", "POST", "/tickets/1/answer", ``, 404},
		{"a push", "POST", "/pushes", `{"text":"a","at":"2099-01-01T10:00:00Z"}`, 200},
		{"a push too late", "POST", "/pushes", `{"text":"a","at":"1999-01-01T10:00:00Z"}`, 409},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+url+tc.path, strings.NewReader(tc.body))
			require.NoError(t, err)
			response, err := client.Do(request)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, tc.want, response.StatusCode)
		})
	}
}

// Write makes a diary what serve logs to.
func (d *diary) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, string(line))
	return len(line), nil
}

// TestServeTaken names the address that cannot be had.
func TestServeTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	require.ErrorContains(t, serve(t.Context(), &bytes.Buffer{}, ln.Addr().String()), ln.Addr().String())
}
