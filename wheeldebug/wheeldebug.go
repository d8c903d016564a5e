// Package wheeldebug serves a page that shows timing wheels as they turn: how full each slot is,
// the head of the delay queue, how late timers fire, and the counters over time. Mount it as you
// would net/http/pprof; it does not register itself:
//
//	http.Handle("/debug/wheel/", wheeldebug.Handler(tw))
//
// A Set shows several wheels by name:
//
//	var wheels wheeldebug.Set
//	wheels.Add("sessions", sessions)
//	wheels.Add("retries", retries)
//	http.Handle("/debug/wheel/", &wheels)
//
// The page is a single file and loads no scripts, styles, fonts or images. It asks for the numbers
// about once a second while it is visible. In a browser without scripts it is a table of the
// numbers. The same numbers are JSON at ?format=json, for one wheel at ?wheel=name&format=json.
// README.md lists the fields.
//
// # Who may see it
//
// The page shows counts and times, but neither callbacks nor what they hold. It changes nothing.
// But its numbers reveal how busy a program is, when, and with how many peers. Serve it to the
// people who run the program, as you would pprof: on a loopback or an internal address, or behind
// authentication, and not to the internet. The page has no authentication of its own.
//
// # Cost
//
// The package starts no goroutine, and reads a wheel only when a request comes in. A reading is
// bounded, whatever the wheel holds: it looks at each slot and at about 50,000 timers, which takes
// about a millisecond, and releases the locks every few hundred steps. Requests that come close
// together share a reading, so all of them use at most about a fiftieth of one processor.
package wheeldebug

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/go-timingwheel/timingwheel"
)

// This file has the handlers. Set.mu guards the names; view.mu, one for each wheel, guards its
// latest reading.

// Handler returns a handler that shows one wheel, under any path. The wheel is not garbage
// collected while the handler is reachable. Handler panics if tw is nil or was not made by New.
func Handler(tw *timingwheel.TimingWheel) http.Handler {
	if tw == nil {
		panic("wheeldebug: Handler with a nil TimingWheel")
	}
	s := new(Set)
	s.Add("wheel", tw)
	return s
}

// A Set is a handler that shows several wheels by name. The zero Set is empty and ready for use. It
// is safe for concurrent use. It must not be copied after first use.
type Set struct {
	mu    sync.Mutex
	views map[string]*view
}

// Add adds tw under a name, which may be any text. The wheel is not garbage collected before it is
// removed. Add panics if the name is empty or taken, and if tw is nil or was not made by New.
func (s *Set) Add(name string, tw *timingwheel.TimingWheel) {
	switch {
	case tw == nil:
		panic("wheeldebug: Add of a nil TimingWheel")
	case name == "":
		panic("wheeldebug: Add with an empty name")
	}
	tw.Len() // panics if New did not make tw; better now than in a request
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[name] != nil {
		panic("wheeldebug: Add of a second wheel as " + strconv.Quote(name))
	}
	if s.views == nil {
		s.views = map[string]*view{}
	}
	s.views[name] = &view{name: name, tw: tw}
}

// Remove removes the wheel of that name, if there is one. A stopped wheel is shown, as stopped,
// until it is removed.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.views, name)
}

// ServeHTTP serves the page of the wheel that the query names, or with format=json the numbers
// alone. Without a name the page is a table of all wheels, or the page of the only one, and the
// JSON has all wheels.
//
// ServeHTTP ignores the path.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// All addresses in the page consist of a query alone. So it works under any path and behind
	// http.StripPrefix, while a handler that served JSON at a path below its own would have to know
	// its own path.
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the address holds the name of a wheel
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "wheeldebug: only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	names, chosen := s.choose(query.Get("wheel"))
	if chosen == nil {
		http.Error(w, "wheeldebug: no wheel of that name", http.StatusNotFound)
		return
	}
	switch query.Get("format") {
	case "", "html":
		servePage(w, names, chosen)
	case "json":
		serveJSON(w, chosen)
	default:
		http.Error(w, "wheeldebug: format is html or json", http.StatusBadRequest)
	}
}

// choose returns the names of all wheels, sorted, and the wheels that a request is for: the wheel
// of that name, nil if there is none, or all wheels if the name is empty.
func (s *Set) choose(name string) (names []string, chosen []*view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names = slices.Sorted(maps.Keys(s.views))
	if name != "" {
		if v := s.views[name]; v != nil {
			chosen = []*view{v}
		}
		return names, chosen
	}
	chosen = make([]*view, len(names))
	for i, name := range names {
		chosen[i] = s.views[name]
	}
	return names, chosen
}
