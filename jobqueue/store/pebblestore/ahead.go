package pebblestore

import (
	"runtime"
	"sync"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Finding jobs takes longer than all else that a group does. So Do finds those that its operations
// name before it locks mu, while another group is built, and on all processors. What a group has
// written since is found again.

// A lookup is a job that an operation names, and what was found.
type lookup struct {
	op    int // which of the group
	queue *queue
	ref   store.Ref
	seq   uint64 // unless it is named by key
	load  bool   // the record is needed
	part  uint32 // the last one that was applied before

	entry *entry
	err   error
}

// lookupsLocked returns what the operations have to find.
func (s *Store) lookupsLocked(ops []store.Op) (list []lookup) {
	if s.hasChosen {
		return nil // an ID may have to be looked up first
	}
	for i, op := range ops {
		l := lookup{op: i, part: s.group.part, load: true}
		switch op := op.(type) {
		case *store.Cancel:
			l.queue, l.ref, l.load = s.queues[op.Queue], op.Ref, false
		case *store.Reschedule:
			l.queue, l.ref = s.queues[op.Queue], op.Ref
		case *store.Update:
			l.queue, l.ref = s.queues[op.Queue], op.Ref
		}
		l.seq = uint64(l.ref.ID)
		if l.queue != nil && l.ref != (store.Ref{}) {
			list = append(list, l)
		}
	}
	return list
}

// aheadLeast is how many lookups a goroutine is worth.
const aheadLeast = 8

func (s *Store) readAhead(list []lookup) {
	n := min(runtime.GOMAXPROCS(0), len(list)/aheadLeast)
	if n < 2 {
		s.readPart(list)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { s.readPart(list[i*len(list)/n : (i+1)*len(list)/n]) })
	}
	wg.Wait()
}

func (s *Store) readPart(list []lookup) {
	for i := range list {
		l := &list[i]
		if l.ref.ID != 0 {
			l.entry, l.err = s.readID(l.queue, l.ref.ID, l.seq)
			continue
		}
		if l.entry, l.err = s.readKey(l.queue, l.ref.Key); l.err != nil {
			continue
		}
		if l.entry == nil {
			l.err = store.ErrNotFound
		} else if l.load {
			// A move between the two reads would show as damage; current notices it.
			l.err = s.load(l.entry)
		}
	}
}

// current says whether no part has touched since what was looked up.
func (g *group) current(l *lookup) bool {
	same := func(h uint64) bool { return int32(g.stamps[h&0xffff]-l.part) <= 0 }
	if l.ref.ID != 0 {
		return same(l.seq)
	}
	return same(hash(l.queue, l.ref.Key)) && (l.entry == nil || same(l.entry.place.seq))
}
