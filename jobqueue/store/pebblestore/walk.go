package pebblestore

// A walk goes through the live jobs of queues in their order. It sees them as they were when it was
// made.
type walk struct {
	s       *Store
	offset  int64 // of the clocks
	pending bool  // leased jobs are passed over
	passed  map[uint64]bool
	heads   []*head
	err     error
}

// A head is the next job of one space of one queue.
type head struct {
	w     *walk
	queue *queue
	space space
	scan  *scan
	ok    bool
	place place // behind all others at the end
	due   int64 // by the wall clock
}

// walk returns a walk through jobs that are not leased. mu is locked while it is used.
func (s *Store) walk(queues ...*queue) (*walk, error) {
	w := &walk{s: s, offset: s.clock.offset, pending: true}
	for _, q := range queues {
		if q.instants < q.live {
			w.open(q, elapsed, q.cursor[0], maxAt)
		}
		if q.instants > 0 {
			w.open(q, instant, q.cursor[1], maxAt)
		}
	}
	if w.err != nil {
		w.close()
		return nil, w.err
	}
	return w, nil
}

// open adds a space of a queue, from a place to a time inclusive.
func (w *walk) open(q *queue, sp space, from place, to uint64) {
	from.space = sp
	upper := place{space: sp + 1}.key(nil, 0)[:1]
	if to < maxAt {
		upper = place{space: sp, at: to + 1}.key(nil, q.number)
	} else if q.number < 1<<32-1 {
		upper = prefix(nil, byte(sp), q.number+1)
	}
	c, err := w.s.newScan(from.key(nil, q.number), upper)
	if err != nil {
		w.err = err
		return
	}
	h := &head{w: w, queue: q, space: sp, scan: c}
	w.heads = append(w.heads, h)
	h.seek(from)
}

// pass has a job passed over.
func (w *walk) pass(p place) {
	if w.passed == nil {
		w.passed = map[uint64]bool{}
	}
	w.passed[p.seq] = true
}

// head returns the job that comes next, or nil.
func (w *walk) head() (first *head) {
	for _, h := range w.heads {
		for h.ok && (w.pending && w.s.leases[h.place.seq] != nil || w.passed[h.place.seq]) {
			h.next()
		}
		if h.ok && (first == nil || h.before(first)) {
			first = h
		}
	}
	return first
}

func (h *head) before(o *head) bool {
	a, b := h.place, o.place
	switch {
	case h.due != o.due:
		return h.due < o.due
	case a.priority != b.priority:
		return a.priority < b.priority
	}
	return a.seq < b.seq
}

// seek goes to the first job that is not before a place.
func (h *head) seek(p place) {
	p.space = h.space
	h.ok = h.scan.seek(p.key(nil, h.queue.number))
	h.read()
}

func (h *head) next() {
	h.ok = h.scan.next()
	h.read()
}

func (h *head) read() {
	if !h.ok {
		if err := h.scan.Error(); err != nil && h.w.err == nil {
			h.w.err = readError(err)
		} else {
			h.place = place{h.space, maxAt, 255, 1<<64 - 1}
		}
		return
	}
	var err error
	if h.place, err = placeOf(h.scan.last); err != nil {
		h.ok = false
		h.w.err = err
	}
	h.due = h.place.space.inWall(h.place.at, h.w.offset)
}

// entry returns the job with its record.
func (h *head) entry() (*entry, error) {
	v, err := h.scan.copied()
	if err != nil {
		return nil, err
	}
	e := &entry{queue: h.queue, place: h.place}
	return e, e.decode(v)
}

func (w *walk) close() {
	for _, h := range w.heads {
		h.scan.close()
	}
}
