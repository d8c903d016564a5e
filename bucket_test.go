package timingwheel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBucket: whatever comes and goes, next finds each timer that is in the bucket, and
// preload takes any lists.
func TestBucket(t *testing.T) {
	var b bucket
	require.True(t, b.empty())
	require.Nil(t, b.next())
	b.preload(holdLimit)

	r := newRand(1)
	in := map[*Timer]bool{}
	for range 2000 {
		for range r.IntN(12) {
			x := &Timer{}
			b.add(x)
			in[x] = true
		}
		for x := range in { // as Stop does, which makes the lists uneven
			if r.IntN(3) == 0 {
				x.unlink()
				require.Zero(t, x.link)
				delete(in, x)
			}
		}
		b.preload(r.IntN(holdLimit))
		for range r.IntN(12) {
			x := b.next()
			require.Equal(t, len(in) == 0, x == nil)
			if x == nil {
				break
			}
			require.True(t, in[x])
			x.unlink()
			delete(in, x)
		}
		require.Equal(t, len(in) == 0, b.empty())
	}
	for b.preload(holdLimit); !b.empty(); b.next().unlink() {
	}
	require.Nil(t, b.next())
}

// TestBucketGoesRoundItsLists: timers are spread evenly and taken from all ends in turn. Otherwise
// preload would not load what is handled next.
func TestBucketGoesRoundItsLists(t *testing.T) {
	const each = 5
	var b bucket
	var timers [2 * listsPerBucket * each]Timer
	for i := range timers {
		b.add(&timers[i])
	}
	for i := range b.lists {
		n := 0
		for l := b.lists[i].root.next; l != &b.lists[i].root; l = l.next {
			n++
		}
		require.Equal(t, 2*each, n)
	}
	for range each {
		ends := map[*Timer]bool{}
		for i := range b.lists {
			ends[b.lists[i].front()], ends[b.lists[i].back()] = true, true
		}
		for range 2 * listsPerBucket {
			x := b.next()
			require.True(t, ends[x])
			delete(ends, x)
			x.unlink()
		}
	}
	require.True(t, b.empty())
}
