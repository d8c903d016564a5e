package redisstore

import "time"

// WithClock has scripts take the time from now instead of the server. The Store then hears nothing
// from other processes, which do not have that clock.
func WithClock(now func() time.Time) Option {
	return func(s *settings) { s.clock = now }
}

// HashOf returns the hash by which a key is found.
func HashOf(key string) uint32 { return hashOf(key) }
