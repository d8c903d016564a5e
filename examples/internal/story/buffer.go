package story

import (
	"bytes"
	"regexp"
	"sync"
	"time"
)

// A Buffer is what the tests of a program have it print to: a bytes.Buffer that may be
// read meanwhile. mu guards what is in it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Await waits until a pattern is found in what was printed, and returns what matched.
func (b *Buffer) Await(t interface{ Fatalf(string, ...any) }, pattern string) string {
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(2 * patience); ; time.Sleep(time.Millisecond) {
		text := b.String()
		if found := re.FindString(text); found != "" {
			return found
		}
		if time.Now().After(end) {
			t.Fatalf("no %s in\n%s", pattern, text)
		}
	}
}
