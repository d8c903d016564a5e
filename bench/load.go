package bench

import (
	"math/rand/v2"
	"time"
)

// Everything random comes from generators seeded alike, so that every
// implementation gets the same delays in the same order.

func nothing() {}

// longDelay returns 1 to 60 minutes: a timer that stays pending throughout.
func longDelay(r *rand.PCG) time.Duration {
	return time.Minute + time.Duration(below(r, uint64(59*time.Minute)))
}

// below returns a random number below n by a multiplication: cheaper than
// rand.Rand, whose last bit of uniformity no benchmark needs. n must be below
// 1 << 48.
func below(r *rand.PCG, n uint64) uint64 { return (r.Uint64() >> 48) * n >> 16 }

// delays are 4,096 delays of 1 to 31 s: enough to spread over the wheel, few
// enough to stay in the cache.
var delays = func() (d [4096]time.Duration) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range d {
		d[i] = time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
	}
	return d
}()
