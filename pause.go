//go:build !timingwheel_pause

package timingwheel

// A pause point is a place where a test may hold a goroutine up, to force an interleaving of which
// there would be one chance in a million: _ = pause("filed"). It exists under the build tag
// timingwheel_pause only, where pause is a function (pause_on.go). Here pause is a type and the same
// line converts a constant, which the compiler has forgotten before it inlines or generates code.
// An empty function was rejected: it cost (*Timer).extend its inlining and left NOPs behind.
//
// Where a point lies is said in pause_on.go, what each is for in docs/design.md.
type pause string
