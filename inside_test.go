package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/inside"
)

func TestPicture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), WithWheelSize(16), withShards(2))
		require.Equal(t, inside.Picture{
			Executor: "inline", Started: true, Alarm: inside.Unset,
			Levels: []inside.Level{{Tick: time.Millisecond}},
		}, inside.Hooks.Picture(tw, inside.Count{Limit: 10}))

		timers := make([]Timer, 40) // dealt to both shards
		for i := range timers {
			tw.Init(&timers[i], func() {})
			timers[i].Reset(5 * time.Millisecond)
		}
		tw.AfterFunc(100*time.Millisecond, func() {})
		tw.AfterFunc(1<<63-1, func() {})
		time.Sleep(2*time.Millisecond + time.Microsecond)
		tw.AfterFunc(time.Millisecond/2, func() {}).Stop() // moves a clock
		p := inside.Hooks.Picture(tw, inside.Count{Limit: 10})
		require.Equal(t, 2*time.Millisecond+time.Microsecond, p.At)
		require.Equal(t, 3*time.Millisecond, p.Alarm)
		require.Equal(t, 1, p.Beyond)
		require.Zero(t, p.Due)
		require.Len(t, p.Levels, 2)
		require.Equal(t, []inside.Slot{{
			Index: 5, Expiration: 5 * time.Millisecond, Timers: 20, Full: true,
		}}, p.Levels[0].Slots, "10 of each shard")
		require.Equal(t, 32, p.Levels[0].Size)
		require.Equal(t, 2*time.Millisecond, p.Levels[0].Now)
		require.Equal(t, []inside.Slot{{Index: 6, Expiration: 96 * time.Millisecond, Timers: 1}},
			p.Levels[1].Slots)
		require.Equal(t, 3, p.Queued)
		require.Len(t, p.Queue, 3)

		// Slot 5 is in turn, and slot 6 is not.
		p = inside.Hooks.Picture(tw, inside.Count{Limit: 1, DeepLimit: 21, Parts: 4, Turn: 1})
		require.Equal(t, []inside.Slot{{
			Index: 5, Expiration: 5 * time.Millisecond, Timers: 40, Deep: true,
		}}, p.Levels[0].Slots)
		require.Equal(t, []inside.Slot{{
			Index: 6, Expiration: 96 * time.Millisecond, Timers: 1, Full: true,
		}}, p.Levels[1].Slots)
		require.Equal(t, 40, p.Deep)
		require.Equal(t, 5*time.Millisecond, p.Queue[0].Attention)
		require.Equal(t, 80*time.Millisecond, p.Queue[2].Attention, "one slot before it is due")
		require.Equal(t, 1, p.Queue[2].Level)

		for i := range 40 {
			tw.AfterFunc(time.Duration(i)*time.Minute, func() {})
		}
		p = inside.Hooks.Picture(tw, inside.Count{Limit: 10})
		require.Greater(t, p.Queued, inside.QueueHead)
		require.Len(t, p.Queue, inside.QueueHead)

		tw.Stop()
		p = inside.Hooks.Picture(tw, inside.Count{Limit: 10})
		require.True(t, p.Stopped)
		require.Equal(t, inside.Unset, p.Alarm)
		require.Zero(t, p.Queued)
	})
}

// TestPictureOfAWheelAtWork: looking and everything else at the same time, for the race
// detector, and none of it is held up for good.
func TestPictureOfAWheelAtWork(t *testing.T) {
	tw := New(WithWheelSize(4))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20_000 {
			x := tw.AfterFunc(time.Duration(i%5000)*time.Microsecond, func() {})
			if i%3 == 0 {
				x.Stop()
			}
		}
	}()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
			p := inside.Hooks.Picture(tw,
				inside.Count{Limit: 100, DeepLimit: 1000, Parts: 3, Turn: 1})
			require.LessOrEqual(t, len(p.Queue), inside.QueueHead)
			require.LessOrEqual(t, len(p.Queue), p.Queued)
		}
	}
	require.NoError(t, tw.Shutdown(t.Context()))
}
