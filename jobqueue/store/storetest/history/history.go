// Package history checks what a job queue does under kill -9. Kill runs a process under load, kills
// it again and again, and has it write down what it asked for and what it was told, in a log that
// survives. Check then proves from the log alone that no promise was broken.
//
// It works through package jobqueue. Package storetest, above this one, tests stores alone.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Kind says what an Event is about. Those that come in twos are written before a call and when it
// has returned.
type Kind string

// The kinds of Events.
const (
	Start       Kind = "start"       // a process has opened the store
	Killed      Kind = "killed"      // a process has ended, written by the one that started it
	Add         Kind = "add"         // asked for
	Added       Kind = "added"       // told
	Begin       Kind = "begin"       // a delivery: a handler begins, or a puller has the job
	Return      Kind = "return"      // the handler is about to return Err
	Ack         Kind = "ack"         // asked for by a puller
	Acked       Kind = "acked"       // told
	Cancel      Kind = "cancel"      // asked for
	Cancelled   Kind = "cancelled"   // told
	Reschedule  Kind = "reschedule"  // asked for
	Rescheduled Kind = "rescheduled" // told
	Found       Kind = "found"       // a job that is there at the end
	End         Kind = "end"         // nothing is left to deliver, and all that is there was Found
)

// What Err is in an Event that tells an outcome. Anything else is an error that says for sure that
// nothing was done, but for Unknown.
const (
	OK       = ""
	Running  = "running"   // Cancel: the job was being worked on
	NotFound = "not found" // Cancel, Reschedule
	Leased   = "leased"    // Reschedule
	Lost     = "lost"      // Ack: the lease is not the caller's
	Unknown  = "unknown"   // it may have been done or not
	Retry    = "retry"     // Return: again in In
	Snooze   = "snooze"    // Return: again in In, and the attempt does not count
)

// An Event is a line of the log.
type Event struct {
	Kind    Kind
	Process int
	Wall    int64 `json:",omitempty"` // nanoseconds by the wall clock
	Mono    int64 `json:",omitempty"` // nanoseconds since the process started
	Job     string
	ID      string        `json:",omitempty"` // Added, Begin
	At      int64         `json:",omitempty"` // Add, Reschedule: the instant asked for, as Wall is
	In      time.Duration `json:",omitempty"` // Add, Reschedule, Return: from Mono on
	Most    int           `json:",omitempty"` // Add: attempts; 0 for no limit
	Attempt int           `json:",omitempty"` // Begin, Return, Ack, Acked, Found
	Lease   time.Duration `json:",omitempty"` // Begin of a puller
	Since   int64         `json:",omitempty"` // Begin of a puller: Mono before the lease
	Err     string        `json:",omitempty"`
	State   string        `json:",omitempty"` // Found: "dead", or that of a live job
	Beside  bool          `json:",omitempty"` // Start: processes before it go on until Killed
}

// A Log is a file that has what was written to it although the process is killed: each Event is in
// the kernel's hands before Write returns. Its lines are in the order of the Writes.
type Log struct {
	process int
	start   time.Time
	mu      sync.Mutex
	file    *os.File
}

// OpenLog opens a log for more Events.
func OpenLog(path string, process int) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString("\n\n") // a line that a kill has cut ends before an empty one
	return &Log{process: process, start: time.Now(), file: f}, err
}

// Now returns an Event of this moment.
func (l *Log) Now(kind Kind, job string) Event {
	now := time.Now()
	mono := int64(now.Sub(l.start))
	return Event{Kind: kind, Process: l.process, Wall: now.UnixNano(), Mono: mono, Job: job}
}

// Write appends an Event. It panics if it cannot, as the history would be wrong.
func (l *Log) Write(e Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The line before may be that of another process, cut by a kill.
	if _, err := fmt.Fprintf(l.file, "\n%s\n", line); err != nil {
		panic(err)
	}
}

// ReadLog returns the Events of a log. A line that a kill has cut is passed over.
func ReadLog(path string) (events []Event, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cut, processes := 0, map[int]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		switch {
		case len(lines.Bytes()) == 0:
		case json.Unmarshal(lines.Bytes(), &e) != nil:
			cut++
		default:
			if e.Kind == Start {
				processes[e.Process] = true
			}
			events = append(events, e)
		}
	}
	if cut > len(processes) {
		return nil, fmt.Errorf("%s: %d lines of %d processes cannot be read", path, cut,
			len(processes))
	}
	return events, lines.Err()
}
