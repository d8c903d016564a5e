package jobqueue

import (
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// An ID identifies a job of a store for ever. Its text has 13 digits and letters.
type ID = store.ID

// ParseID reads the text of an ID.
func ParseID(s string) (ID, error) { return store.ParseID(s) }

// A Ref names a job of a queue. It is made by ByID or ByKey.
type Ref = store.Ref

// ByID names the job with an ID.
func ByID(id ID) Ref { return Ref{ID: id} }

// ByKey names the live job with a key: one that is Delayed, Ready or Leased.
func ByKey(key string) Ref { return Ref{Key: key} }

// State is what a job is waiting for.
type State = store.State

// The states of a job. Those that are Delayed, Ready or Leased are called live.
const (
	Delayed = store.Delayed // its time has not come
	Ready   = store.Ready   // its time has come
	Leased  = store.Leased  // being worked on
	Dead    = store.Dead    // given up: after the last attempt, by Bury, or by a limit
	Done    = store.Done    // acknowledged, and kept for the time that Retain said
)

// A Job is a job as it was when it was read.
type Job struct {
	ID          ID
	Queue       string
	Key         string // empty for none
	Body        []byte
	State       State
	Due         time.Time
	Priority    int // lower first; 0 unless Priority said otherwise
	Attempts    int // deliveries so far, this one included
	MaxAttempts int // 0 if the handler's Attempts decides
	Added       time.Time
	Retain      time.Duration
	Repeat      *Repeat // of a recurring job
	LastError   string  // why the attempt before failed, or why the job is Dead

	LeaseEnd time.Time // while Leased
	Finished time.Time // while Dead or Done
}

// jobOf returns a store's job as callers see it.
func jobOf(j *store.Job) Job {
	job := Job{
		ID:          j.ID,
		Queue:       j.Queue,
		Key:         j.Key,
		Body:        j.Body,
		State:       j.State,
		Due:         j.Due,
		Priority:    int(j.Priority) - 128,
		Attempts:    j.Attempts,
		MaxAttempts: j.MaxAttempts,
		Added:       j.Added,
		Retain:      j.Retain,
		LastError:   j.LastError,
		LeaseEnd:    j.LeaseEnd,
		Finished:    j.Finished,
	}
	if len(j.Repeat) > 0 {
		job.Repeat, _ = parseRepeat(j.Repeat)
	}
	return job
}
