// Package wheeldebug serves a page that shows timing wheels as they turn: how full each
// slot is, the head of the delay queue, how late timers fire, and the counters over
// time. It is mounted as net/http/pprof is, but nothing registers itself:
//
//	http.Handle("/debug/wheel/", wheeldebug.Handler(tw))
//
// or, for several wheels by name:
//
//	var wheels wheeldebug.Set
//	wheels.Add("sessions", sessions)
//	wheels.Add("retries", retries)
//	http.Handle("/debug/wheel/", &wheels)
//
// The page is one file without scripts, styles, fonts or images from elsewhere. It asks
// for the numbers about once a second as long as somebody looks at it; without scripts
// it is a table of the numbers. The same numbers are JSON at ?format=json, of one wheel at
// ?wheel=name&format=json. README.md has its fields.
//
// # Who may see it
//
// It shows counts and times, no callbacks and nothing of what they hold, and changes
// nothing. But these tell how busy a program is, when, and with how many peers: serve
// it to those who run the program, as with pprof, on a loopback or an internal
// address or behind authentication, and not to the internet. There is no
// authentication in it.
//
// # Cost
//
// There is no goroutine, and nothing is read unless somebody asks. What is read is
// bounded, whatever the wheel holds: a look at each slot and at about 50,000 timers,
// about a millisecond in all, with the locks released every few hundred steps.
// Requests that come close after each other share what was read, however many they are,
// so that looking takes no more than about a fiftieth of one processor.
package wheeldebug

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds what is exported, and answers requests. Set.mu guards the names;
// each wheel has a lock of its own, for reading it (see view).

// Handler returns a handler that shows one wheel, at whatever path it is mounted. The
// wheel is kept from being collected as long as the handler is reachable. Handler
// panics if tw is nil or was not made by New.
func Handler(tw *timingwheel.TimingWheel) http.Handler {
	if tw == nil {
		panic("wheeldebug: Handler with a nil TimingWheel")
	}
	s := new(Set)
	s.Add("wheel", tw)
	return s
}

// A Set is a handler that shows several wheels by name. The zero Set is empty and ready
// for use. Its methods may be called from any goroutine, also while it serves. It must
// not be copied after first use.
type Set struct {
	mu    sync.Mutex
	views map[string]*view
}

// Add makes the Set show tw under a name, which may be any text. The wheel is kept from
// being collected until it is removed. Add panics if the name is empty or taken, and if
// tw is nil or was not made by New.
func (s *Set) Add(name string, tw *timingwheel.TimingWheel) {
	switch {
	case tw == nil:
		panic("wheeldebug: Add of a nil TimingWheel")
	case name == "":
		panic("wheeldebug: Add with an empty name")
	}
	tw.Len() // panics now, and not when somebody looks, if New did not make it
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

// Remove makes the Set forget the wheel of that name, and does nothing if there is none. A
// wheel that was stopped is shown, as stopped, until it is removed.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.views, name)
}

// ServeHTTP serves the page, or with format=json in the query the numbers alone, of the
// wheel that the query names. Without a name the page is a table of all wheels, or shows
// the only one, and the JSON has them all.
//
// The path is not looked at. All addresses in the page consist of a query alone, so it
// works under any path and behind http.StripPrefix, with a slash at the end or without,
// where a handler that knew a path "json" below its own would have to know its own.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the name of a wheel is nobody else's business
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

// choose returns the names of all wheels, sorted, and the wheels that a request is for: the
// one of that name, nil if there is none, or all if no name is given.
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
