package main

import (
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is what a service of your own would copy: a keyed debounce. debounce.mu
// guards the map, and under it each decision is made; fire is called without it.

// A debounce calls fire(key) when there has been no event of the key for as long as
// quiet. Between its first event and fire a key has an entry with a Timer inside, which
// every event pushes on. Afterwards nothing of it is left.
type debounce[K comparable] struct {
	tw    *timingwheel.TimingWheel
	quiet time.Duration
	fire  func(K) // on a goroutine of its own

	// Not an RWMutex: of two events of one key side by side the first could read
	// the clock, and then Reset the timer after the second had, back to a deadline
	// that is too early. What is done under mu takes a fraction of a microsecond, as
	// Reset of a pending timer to later is a compare-and-swap.
	mu      sync.Mutex
	entries map[K]*entry // nil after stop
}

// An entry is not used again for another key: whoever holds one, as a callback on its
// way does, must be able to tell that it is no longer in the map.
type entry struct {
	timer timingwheel.Timer
}

func newDebounce[K comparable](tw *timingwheel.TimingWheel, quiet time.Duration, fire func(K)) *debounce[K] {
	return &debounce[K]{tw: tw, quiet: quiet, fire: fire, entries: make(map[K]*entry)}
}

// touch is an event of the key. It returns false if the debounce has been stopped.
func (d *debounce[K]) touch(key K) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries == nil {
		return false
	}
	e := d.entries[key]
	if e == nil {
		e = new(entry)
		d.tw.Init(&e.timer, func() { d.expire(key, e) })
		d.entries[key] = e
	}
	e.timer.Reset(d.quiet)
	return true
}

// expire is the callback of e's timer. An event of the same moment can come first:
//
//	driver    hands expire over to a goroutine of its own
//	touch     takes the lock, finds e in the map, and Reset arms its timer again
//	expire    takes the lock, finds the timer pending, and leaves all to its next call
//
// so fire is not early, and the event not lost. Or it comes second:
//
//	expire    takes the lock, finds the timer not pending, and removes e
//	touch     takes the lock, finds no entry, and makes another
//
// so fire is for the events before, and this one begins anew. If the first expire is
// held up for so long that the second is handed over too, one of them removes e, and the
// other finds it gone, or finds another entry in its place.
func (d *debounce[K]) expire(key K, e *entry) {
	d.mu.Lock()
	if d.entries[key] != e || e.timer.Pending() {
		d.mu.Unlock()
		return
	}
	d.remove(key)
	d.mu.Unlock()
	d.fire(key)
}

// remove is called with mu held.
func (d *debounce[K]) remove(key K) {
	delete(d.entries, key)
	if len(d.entries) == 0 {
		d.entries = make(map[K]*entry) // a map does not shrink
	}
}

// forget drops a key without a call of fire. It returns false if there is nothing to
// drop, because fire has been called or is about to be, or no event ever came.
func (d *debounce[K]) forget(key K) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[key]
	if e == nil {
		return false
	}
	e.timer.Stop()
	d.remove(key)
	return true
}

// waiting returns the number of keys for which fire will be called.
func (d *debounce[K]) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries)
}

// stop ends the debounce and returns the keys for which fire would have been called. A
// call of fire may still be under way; the wheel's Shutdown waits for it.
func (d *debounce[K]) stop() []K {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []K
	for key, e := range d.entries {
		e.timer.Stop()
		keys = append(keys, key)
	}
	d.entries = nil
	return keys
}
