package jobqueue

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// groupsUnderWay is how many groups are handed to the store at a time: one is prepared by the store
// while it syncs the other.
const groupsUnderWay = 2

// A group collects the operations of callers who come while the groups before are being stored, and
// stores them together. The callers wait for their group, not for a turn. It has goroutines only
// while there is something to store.
type group struct {
	store store.Store

	mu       sync.Mutex
	next     *batch // to be stored next, nil if there is nothing
	underWay int
}

// A batch is one call of Store.Do.
type batch struct {
	ops  []store.Op
	done chan struct{} // closed when err is set
	err  error
}

// do returns when the operations are stored, or when ctx ends: those that have not been handed to
// the store by then are taken back; otherwise the error matches ErrUnknown too.
func (g *group) do(ctx context.Context, ops ...store.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	b := g.next
	if b == nil {
		b = &batch{done: make(chan struct{})}
		g.next = b
	}
	b.ops = append(b.ops, ops...)
	if g.underWay < groupsUnderWay {
		g.underWay++
		go g.work()
	}
	g.mu.Unlock()

	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
	}
	if g.takeBack(b, ops) {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
}

// work stores batches until there is none.
func (g *group) work() {
	for {
		g.mu.Lock()
		b := g.next
		g.next = nil
		if b == nil {
			g.underWay--
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if len(b.ops) > 0 {
			b.err = g.store.Do(context.Background(), b.ops)
		}
		close(b.done)
	}
}

// takeBack removes operations from a batch that has not been handed to the store.
func (g *group) takeBack(b *batch, ops []store.Op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != b {
		return false
	}
	for i, op := range b.ops {
		if op == ops[0] { // the operations of a caller lie together
			b.ops = append(b.ops[:i], b.ops[i+len(ops):]...)
			break
		}
	}
	return true
}
