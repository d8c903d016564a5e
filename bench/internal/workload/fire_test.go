package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// onlyStarts is a timer that can be neither stopped nor reset.
type onlyStarts struct{ t *testing.T }

func (o onlyStarts) Stop() bool {
	o.t.Error("stopped")
	return false
}

func (o onlyStarts) Reset(time.Duration) bool {
	o.t.Error("reset")
	return false
}

func (onlyStarts) Unstoppable() {}

// Fire needs only Start. It leaves a few timers pending if they cannot be stopped.
func TestFireNeedsNoStop(t *testing.T) {
	const n, spread = 2_000, 20 * time.Millisecond
	left := 0 // timers still pending in the end
	im := Impl{Name: "only starts", Open: func() Instance {
		return Instance{
			Start: func(d time.Duration, f func()) Timer {
				if d > time.Minute {
					left++
				} else {
					time.AfterFunc(d, f)
				}
				return onlyStarts{t}
			},
			Close: func() {},
		}
	}}
	require.Empty(t, Fire.Lacks(im))
	r, err := Fire.Run(Case{Impl: im, N: n, Duration: spread})
	require.NoError(t, err)
	require.Zero(t, value(t, r, "early"))
	require.LessOrEqual(t, left, n/50)
	require.NotZero(t, left)
	require.GreaterOrEqual(t, len(r.Lateness), n*9/10)
}
