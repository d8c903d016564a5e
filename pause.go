//go:build !timingwheel_pause

package timingwheel

// A pause point, such as _ = pause("filed"), is where a test holds a goroutine up to force an
// interleaving. Pause points exist under the build tag timingwheel_pause only, where pause is a
// function (pause_on.go). Here pause is a type, so the same line converts a constant and compiles
// to nothing. An empty function would not: it leaves NOPs behind.
//
// Even the conversion counts in the inliner's budget: see (*Timer).extend.
type pause string
