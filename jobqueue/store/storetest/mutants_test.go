package storetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// A mutant is a store with a fault. Every test of Run that a store in memory can pass must fail for
// one of them, and every mutant must fail a test.
type mutant struct {
	store.Store
	clock  *Clock
	before func(m *mutant, op store.Op)
	after  func(m *mutant, op store.Op)
	do     func(m *mutant, ops []store.Op) error
	ahead  time.Duration // of the clock, during a Claim

	mu     sync.Mutex
	cursor time.Time
	keys   map[string]bool
	jobs   []store.Job
	n      int
}

func (m *mutant) Do(ctx context.Context, ops []store.Op) error {
	if m.do != nil {
		return m.do(m, ops)
	}
	if m.before == nil && m.after == nil {
		return m.Store.Do(ctx, ops)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		if m.before != nil {
			m.before(m, op)
		}
	}
	err := m.Store.Do(ctx, ops)
	for _, op := range ops {
		if m.after != nil && err == nil && op.Outcome().Err == nil {
			m.after(m, op)
		}
	}
	return err
}

// inner carries out an operation of the mutant's own.
func (m *mutant) inner(op store.Op) error {
	return errors.Join(m.Store.Do(context.Background(), []store.Op{op}), op.Outcome().Err)
}

func (m *mutant) find(queue string, ref store.Ref) store.Job {
	j, _ := m.Store.Get(context.Background(), queue, ref)
	return j
}

func (m *mutant) in(queue string, state store.State) []store.Job {
	jobs, _ := all(context.Background(), m.Store, queue, state, 1000)
	return jobs
}

func (m *mutant) info(queue string) (info store.QueueInfo) {
	infos, _ := m.Store.Queues(context.Background())
	for _, i := range infos {
		if i.Name == queue {
			info = i
		}
	}
	return info
}

// on returns a function for operations of one type.
func on[T store.Op](f func(m *mutant, op T)) func(m *mutant, op store.Op) {
	return func(m *mutant, op store.Op) {
		if op, ok := op.(T); ok {
			f(m, op)
		}
	}
}

func before[T store.Op](f func(m *mutant, op T)) *mutant { return &mutant{before: on(f)} }
func after[T store.Op](f func(m *mutant, op T)) *mutant  { return &mutant{after: on(f)} }

// when returns the When of an operation that has one.
func when(op store.Op) *store.When {
	switch op := op.(type) {
	case *store.Add:
		return &op.When
	case *store.Reschedule:
		return &op.When
	case *store.Finish:
		return &op.When
	}
	return nil
}

// times returns a mutant that treats every When so.
func times(f func(m *mutant, w *store.When)) *mutant {
	return &mutant{before: func(m *mutant, op store.Op) {
		if w := when(op); w != nil {
			f(m, w)
		}
	}}
}

// verdict returns a mutant that treats the Finish with a verdict so.
func verdict(v store.Verdict, f func(m *mutant, op *store.Finish)) *mutant {
	return before(func(m *mutant, op *store.Finish) {
		if op.Verdict == v {
			f(m, op)
		}
	})
}

// instead returns a mutant that carries out the operations that f does not.
func instead(f func(m *mutant, op store.Op) (done bool, err error)) *mutant {
	return &mutant{do: func(m *mutant, ops []store.Op) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, op := range ops {
			done, err := f(m, op)
			if done {
				op.Outcome().Err = err
			} else if err := m.Store.Do(context.Background(), []store.Op{op}); err != nil {
				return err
			}
		}
		return nil
	}}
}

var mutants = map[string]func() *mutant{
	"fresh jobs wait": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) { op.Fresh = 0 })
	},
	"fresh jobs take all": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) {
			if op.Fresh > 0 {
				op.Fresh = op.Max
			}
		})
	},
	"last attempts are claimed ahead": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) { op.Ahead = 0 })
	},
	"nothing is claimed ahead": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) { op.Max -= op.Ahead })
	},
	"a claim is a millisecond early": func() *mutant { return &mutant{ahead: time.Millisecond} },
	"times round down": func() *mutant {
		return times(func(_ *mutant, w *store.When) {
			w.In, w.At = w.In.Truncate(time.Millisecond), w.At.Truncate(time.Millisecond)
		})
	},
	"past instants are now": func() *mutant {
		return times(func(m *mutant, w *store.When) {
			if w.At.Before(m.clock.Now()) {
				w.At = time.Time{}
			}
		})
	},
	"a negative duration is past": func() *mutant {
		return times(func(m *mutant, w *store.When) {
			if w.In < 0 {
				*w = at(m.clock.Now().Add(w.In))
			}
		})
	},
	"far times come near": func() *mutant {
		return times(func(m *mutant, w *store.When) {
			if w.At.Year() > 3000 {
				*w = in(100 * 365 * 24 * time.Hour)
			}
		})
	},
	"durations are late": func() *mutant {
		return times(func(_ *mutant, w *store.When) {
			if w.At.IsZero() {
				w.In = max(w.In, 0) + time.Millisecond
			}
		})
	},
	"no priorities": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.Priority = 128 })
	},
	"the first one blocks": func() *mutant {
		return before(func(m *mutant, op *store.Claim) {
			first := append(m.in(op.Queue, store.Delayed), m.in(op.Queue, store.Ready)...)
			slices.SortFunc(first, func(a, b store.Job) int { return int(a.ID) - int(b.ID) })
			if len(first) > 0 && first[0].State == store.Delayed {
				op.Max = 0
			}
		})
	},
	"claims come in reverse": func() *mutant {
		return after(func(_ *mutant, op *store.Claim) { slices.Reverse(op.Jobs) })
	},
	"a move is a new job": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			move, ok := op.(*store.Reschedule)
			if !ok {
				return false, nil
			}
			j := m.find(move.Queue, move.Ref)
			if j.State != store.Delayed && j.State != store.Ready {
				return false, nil
			}
			_ = m.inner(&store.Cancel{Queue: move.Queue, Ref: byID(j.ID)})
			j.Priority = 128
			return true, m.inner(&store.Add{Job: j, When: move.When})
		})
	},
	"claims only go forward": func() *mutant {
		m := &mutant{}
		m.before = func(m *mutant, op store.Op) {
			if w := when(op); w != nil && !w.At.IsZero() && w.At.Before(m.cursor) {
				*w = in(time.Hour)
			}
		}
		m.after = on(func(m *mutant, op *store.Claim) {
			for _, j := range op.Jobs {
				m.cursor = j.Due
			}
		})
		return m
	},
	"queues of a namespace are one": func() *mutant {
		short := func(s *string) { *s, _, _ = strings.Cut(*s, "/") }
		return &mutant{before: func(_ *mutant, op store.Op) {
			switch op := op.(type) {
			case *store.Add:
				short(&op.Job.Queue)
			case *store.Claim:
				short(&op.Queue)
			}
		}}
	},
	"attempts are counted after delivery": func() *mutant {
		return after(func(_ *mutant, op *store.Claim) {
			for i := range op.Jobs {
				op.Jobs[i].Attempts--
			}
		})
	},
	"leases are long": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) { op.Lease *= 10 })
	},
	"leases end late": func() *mutant {
		return before(func(_ *mutant, op *store.Claim) { op.Lease++ })
	},
	"any token will do": func() *mutant {
		return before(
			func(m *mutant, op *store.Finish) { op.Token = m.find(op.Queue, byID(op.ID)).Token },
		)
	},
	"a lease ends by itself": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			f, ok := op.(*store.Finish)
			if !ok {
				return false, nil
			}
			j := m.find(f.Queue, byID(f.ID))
			return j.State == store.Leased && !j.LeaseEnd.After(m.clock.Now()), store.ErrLeaseLost
		})
	},
	"Extend does nothing": func() *mutant {
		return instead(
			func(_ *mutant, op store.Op) (bool, error) {
				_, ok := op.(*store.Extend)
				return ok, nil
			},
		)
	},
	"no limit of attempts": func() *mutant {
		return &mutant{before: func(_ *mutant, op store.Op) {
			switch op := op.(type) {
			case *store.Add:
				op.Job.MaxAttempts = 0
			case *store.Claim:
				op.MaxAttempts = 0
			}
		}}
	},
	"the claim's limit comes first": func() *mutant {
		return before(func(_ *mutant, op *store.Add) {
			if op.Job.MaxAttempts > 2 {
				op.Job.MaxAttempts = 0
			}
		})
	},
	"recurring jobs die": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.Repeat = nil })
	},
	"Retry forgets why": func() *mutant {
		return verdict(store.Retry, func(_ *mutant, op *store.Finish) { op.Error = "" })
	},
	"Snooze counts": func() *mutant {
		return verdict(store.Snooze, func(_ *mutant, op *store.Finish) { op.Verdict = store.Retry })
	},
	"Bury forgets": func() *mutant {
		return verdict(store.Bury, func(_ *mutant, op *store.Finish) { op.Verdict = store.Ack })
	},
	"Ack is a Retry": func() *mutant {
		return verdict(
			store.Ack,
			func(_ *mutant, op *store.Finish) {
				op.Verdict, op.When = store.Retry, in(time.Minute)
			},
		)
	},
	"nothing is retained": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.Retain = 0 })
	},
	"retained too long": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.Retain *= 2 })
	},
	"Again keeps Repeat": func() *mutant {
		return verdict(store.Again,
			func(_ *mutant, op *store.Finish) { op.Repeat = []byte("run 1") })
	},
	"no dead copy": func() *mutant {
		return verdict(store.Again, func(_ *mutant, op *store.Finish) { op.Failed = false })
	},
	"nothing comes next": func() *mutant {
		return after(func(_ *mutant, op *store.Claim) { op.Next = -1 })
	},
	"something always comes next": func() *mutant {
		return after(func(_ *mutant, op *store.Claim) {
			if op.Next < 0 {
				op.Next = time.Hour
			}
		})
	},
	"no pause": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) { op.Paused = nil })
	},
	"the ID is the token": func() *mutant {
		m := after(func(_ *mutant, op *store.Claim) {
			for i := range op.Jobs {
				op.Jobs[i].Token = uint64(op.Jobs[i].ID)
			}
		})
		m.before = on(func(m *mutant, op *store.Finish) {
			if op.Token == uint64(op.ID) {
				op.Token = m.find(op.Queue, byID(op.ID)).Token
			}
		})
		return m
	},
	"always Replace": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.On = store.Replace })
	},
	"always Keep": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.On = store.Keep })
	},
	"always Fail": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.On = store.Fail })
	},
	"no keys": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.Key = "" })
	},
	"keys are never free": func() *mutant {
		return before(func(m *mutant, op *store.Add) {
			k := op.Job.Queue + op.Job.Key
			if m.keys[k] {
				op.On = store.Keep
			}
			m.keys[k] = true
		})
	},
	"a claim frees the key": func() *mutant {
		return before(func(m *mutant, op *store.Add) {
			if m.find(op.Job.Queue, byKey(op.Job.Key)).State == store.Leased {
				op.Job.Key = ""
			}
		})
	},
	"an Ack frees the key of the next job": func() *mutant {
		return before(func(m *mutant, op *store.Finish) {
			if j := m.find(op.Queue, byID(op.ID)); j.ID == 0 {
				_ = m.inner(&store.Cancel{Queue: op.Queue, Ref: byKey("key")})
			}
		})
	},
	"keys end with a zero": func() *mutant {
		return before(
			func(_ *mutant, op *store.Add) { op.Job.Key, _, _ = strings.Cut(op.Job.Key, "\x00") },
		)
	},
	"no key is a key": func() *mutant {
		return before(func(_ *mutant, op *store.Add) {
			if op.Job.Key == "" {
				op.Job.Key = "none"
			}
		})
	},
	"Requeue takes the key": func() *mutant {
		return before(func(m *mutant, op *store.Requeue) {
			if k := m.find(op.Queue, op.Ref).Key; k != "" {
				_ = m.inner(&store.Cancel{Queue: op.Queue, Ref: byKey(k)})
			}
		})
	},
	"an Add that is tried again fails": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Retry = false })
	},
	"an Add that is tried again is another": func() *mutant {
		return before(func(m *mutant, op *store.Add) {
			if op.Retry && m.find(op.Job.Queue, byID(op.Job.ID)).ID == 0 {
				op.Retry = false
			}
		})
	},
	"no chosen IDs": func() *mutant {
		return before(func(_ *mutant, op *store.Add) { op.Job.ID = 0 })
	},
	"few IDs": func() *mutant { return after(func(_ *mutant, op *store.Add) { op.ID %= 30 }) },
	"Cancel does nothing": func() *mutant {
		return instead(
			func(_ *mutant, op store.Op) (bool, error) {
				_, ok := op.(*store.Cancel)
				return ok, nil
			},
		)
	},
	"Cancel spares dead jobs": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			c, ok := op.(*store.Cancel)
			return ok && m.find(c.Queue, c.Ref).State == store.Dead, store.ErrNotFound
		})
	},
	"Cancel does not say that a job runs": func() *mutant {
		return after(func(_ *mutant, op *store.Cancel) { op.Running = false })
	},
	"Reschedule only to later": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			r, ok := op.(*store.Reschedule)
			return ok && r.When.At.IsZero() &&
				m.clock.Now().Add(r.When.In).Before(m.find(r.Queue, r.Ref).Due), nil
		})
	},
	"Reschedule refuses nothing": func() *mutant {
		return (&mutant{}).refusing(
			func(op store.Op) bool { _, ok := op.(*store.Reschedule); return ok },
		)
	},
	"Update does nothing": func() *mutant {
		return instead(
			func(_ *mutant, op store.Op) (bool, error) {
				_, ok := op.(*store.Update)
				return ok, nil
			},
		)
	},
	"Requeue counts attempts": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			r, ok := op.(*store.Requeue)
			if !ok || r.Ref == (store.Ref{}) {
				return false, nil
			}
			j := m.find(r.Queue, r.Ref)
			if j.State != store.Dead {
				return false, nil
			}
			_ = m.inner(&store.Cancel{Queue: r.Queue, Ref: r.Ref})
			j.ID = 0
			return true, m.inner(&store.Add{Job: j})
		})
	},
	"Requeue takes the newest": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			r, ok := op.(*store.Requeue)
			if !ok || r.Ref != (store.Ref{}) {
				return false, nil
			}
			r.N = 0
			for _, j := range slices.Backward(m.in(r.Queue, store.Dead)) {
				if r.N < r.Max && m.inner(&store.Requeue{Queue: r.Queue, Ref: byID(j.ID)}) == nil {
					r.N++
				}
			}
			return true, nil
		})
	},
	"Requeue refuses nothing": func() *mutant {
		return (&mutant{}).refusing(func(op store.Op) bool {
			_, ok := op.(*store.Requeue)
			return ok
		})
	},
	"Purge takes all": func() *mutant {
		return before(func(_ *mutant, op *store.Purge) { op.Max = 1000 })
	},
	"no limits": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) { op.Limits = nil })
	},
	"no limits on bytes": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) {
			if op.Limits != nil {
				op.Limits.Bytes = 0
			}
		})
	},
	"drops never": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) {
			if op.Limits != nil {
				op.Limits.DropOldest = false
			}
		})
	},
	"drops always": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) {
			if op.Limits != nil {
				op.Limits.DropOldest = true
			}
		})
	},
	"no limits on namespaces": func() *mutant {
		return before(func(_ *mutant, op *store.Configure) {
			if strings.HasSuffix(op.Queue, "/") {
				op.Limits = nil
			}
		})
	},
	"dead jobs count": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			add, ok := op.(*store.Add)
			if !ok {
				return false, nil
			}
			info := m.info(add.Job.Queue)
			return info.Limits.Jobs > 0 && info.Dead >= info.Limits.Jobs, store.ErrFull
		})
	},
	"a replaced job counts": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			add, ok := op.(*store.Add)
			if !ok || add.On != store.Replace {
				return false, nil
			}
			info := m.info(add.Job.Queue)
			return info.Limits.Jobs > 0 &&
				info.Ready+info.Leased+info.Delayed >= info.Limits.Jobs, store.ErrFull
		})
	},
	"Update has no limits": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			u, ok := op.(*store.Update)
			if !ok {
				return false, nil
			}
			limits := m.info("orders/").Limits
			_ = m.inner(limit("orders/", store.Limits{}))
			err := m.inner(u)
			_ = m.inner(limit("orders/", limits))
			return true, err
		})
	},
	"leases are dropped": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			add, ok := op.(*store.Add)
			if !ok || !m.info(add.Job.Queue).Limits.DropOldest {
				return false, nil
			}
			for _, j := range m.in(add.Job.Queue, store.Leased) {
				_ = m.inner(bury(j, "dropped"))
			}
			return false, nil
		})
	},
	"drops although it does not help": func() *mutant {
		return instead(func(m *mutant, op store.Op) (bool, error) {
			add, ok := op.(*store.Add)
			if !ok || !m.info(add.Job.Queue).Limits.DropOldest {
				return false, nil
			}
			err := m.inner(add)
			if err != nil {
				_ = m.inner(&store.Purge{Queue: add.Job.Queue, State: store.Ready, Max: 1000})
			}
			return true, err
		})
	},
	"a refused operation ends the group": func() *mutant {
		return &mutant{do: func(m *mutant, ops []store.Op) error {
			for _, op := range ops {
				if err := m.Store.Do(context.Background(), []store.Op{op}); err != nil ||
					op.Outcome().Err != nil {
					return err
				}
			}
			return nil
		}}
	},
	"cancels come last": func() *mutant {
		return &mutant{do: func(m *mutant, ops []store.Op) error {
			ops = slices.Clone(ops)
			slices.SortStableFunc(ops, func(a, b store.Op) int {
				_, x := a.(*store.Cancel)
				_, y := b.(*store.Cancel)
				switch {
				case x && !y:
					return 1
				case y && !x:
					return -1
				}
				return 0
			})
			return m.Store.Do(context.Background(), ops)
		}}
	},
	"an empty group is refused": func() *mutant {
		return &mutant{do: func(m *mutant, ops []store.Op) error {
			if len(ops) == 0 {
				return errors.New("empty")
			}
			return m.Store.Do(context.Background(), ops)
		}}
	},
	"Kept stays": func() *mutant {
		return after(func(m *mutant, op *store.Add) {
			op.Kept = op.Kept || m.keys["kept"]
			m.keys["kept"] = op.Kept
		})
	},
	"no Add is kept": func() *mutant {
		return after(func(_ *mutant, op *store.Add) { op.Kept = false })
	},
	"a job is claimed twice now and then": func() *mutant {
		return after(func(m *mutant, op *store.Claim) {
			if m.n++; m.n > 20 && len(op.Jobs) > 0 {
				op.Jobs = append(op.Jobs, m.jobs...)
			}
			m.jobs = slices.Clone(op.Jobs)
		})
	},
	"another error once it is closed": func() *mutant {
		return &mutant{do: func(m *mutant, ops []store.Op) error {
			if m.Store.Do(context.Background(), ops) != nil {
				return errors.New("gone")
			}
			return nil
		}}
	},
}

// refusing has operations succeed that the store refuses.
func (m *mutant) refusing(not func(op store.Op) bool) *mutant {
	m.do = func(m *mutant, ops []store.Op) error {
		err := m.Store.Do(context.Background(), ops)
		for _, op := range ops {
			if not(op) {
				op.Outcome().Err = nil
			}
		}
		return err
	}
	return m
}

// The mutants of what is read.
type (
	thinGet   struct{ store.Store }
	thinList  struct{ store.Store }
	thinInfo  struct{ store.Store }
	thinDue   struct{ store.Store }
	deaf      struct{ store.Store }
	rashWatch struct{ store.Store }
	sharing   struct {
		store.Store
		bodies map[store.ID][]byte
	}
)

func (s thinGet) Get(ctx context.Context, queue string, ref store.Ref) (store.Job, error) {
	j, err := s.Store.Get(ctx, queue, ref)
	j.Repeat = nil
	return j, err
}

func (s thinList) List(
	ctx context.Context, queue string, state store.State, after store.Cursor, limit int,
) ([]store.Job, store.Cursor, error) {
	jobs, next, err := s.Store.List(ctx, queue, state, after, limit)
	if next != "" && after != "" {
		jobs = jobs[1:]
	}
	return jobs, next, err
}

func (s thinInfo) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	infos, err := s.Store.Queues(ctx)
	for i := range infos {
		infos[i].Oldest = 0
	}
	return infos, err
}

func (s thinDue) Due(ctx context.Context, queue string, ends []time.Duration) ([]int, error) {
	ends = slices.Clone(ends)
	for i := range ends {
		ends[i]--
	}
	return s.Store.Due(ctx, queue, ends)
}

func (s deaf) Watch(func(string, time.Duration)) {}

func (s rashWatch) Watch(f func(string, time.Duration)) {
	s.Store.Watch(func(queue string, _ time.Duration) { f(queue, 0) })
}

func (s sharing) Get(ctx context.Context, queue string, ref store.Ref) (store.Job, error) {
	j, err := s.Store.Get(ctx, queue, ref)
	if known := s.bodies[j.ID]; known != nil {
		j.Body = known
	}
	s.bodies[j.ID] = j.Body
	return j, err
}

var readMutants = map[string]func(store.Store) store.Store{
	"Get lacks a field":          func(s store.Store) store.Store { return thinGet{s} },
	"List lacks a job of a page": func(s store.Store) store.Store { return thinList{s} },
	"Queues lacks a field":       func(s store.Store) store.Store { return thinInfo{s} },
	"Due leaves out the end":     func(s store.Store) store.Store { return thinDue{s} },
	"Watch tells nothing":        func(s store.Store) store.Store { return deaf{s} },
	"Watch always says now":      func(s store.Store) store.Store { return rashWatch{s} },
	"Get shares bodies": func(s store.Store) store.Store {
		return sharing{s, map[store.ID][]byte{}}
	},
}

const envMutant = "STORETEST_MUTANT"

func mutantConfig(name string) Config {
	return Config{Open: func(_ string, clock *Clock) (store.Store, error) {
		return openMutant(name, clock), nil
	}}
}

// open returns a mutant's store.
func openMutant(name string, clock *Clock) store.Store {
	if f := readMutants[name]; f != nil {
		return f(memory.New(memory.WithClock(clock.Now)))
	}
	m := mutants[name]()
	m.clock, m.keys = clock, map[string]bool{}
	m.Store = memory.New(memory.WithClock(func() time.Time { return clock.Now().Add(m.ahead) }))
	return m
}

// TestMutant is run by TestMutants in a process of its own.
func TestMutant(t *testing.T) {
	name := os.Getenv(envMutant)
	if name == "" {
		t.Skip("there is no mutant")
	}
	Run(t, mutantConfig(name))
}

// runMutant runs a test with a mutant. It must fail.
func runMutant(t *testing.T, test, name string) (out string) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), envMutant+"="+name)
	b, err := cmd.CombinedOutput()
	require.Error(t, err, "no test fails")
	return string(b)
}

// TestMutantCompared is run by TestComparedMutants in a process of its own.
func TestMutantCompared(t *testing.T) {
	name := os.Getenv(envMutant)
	if name == "" {
		t.Skip("there is no mutant")
	}
	for seed := range uint64(20) {
		compare(t, mutantConfig(name), randomBytes(seed, 1000))
	}
}

// TestComparedMutants has the comparison with the model find faults of every kind.
func TestComparedMutants(t *testing.T) {
	for _, name := range []string{
		"a claim is a millisecond early", "times round down", "past instants are now",
		"a negative duration is past", "no priorities", "claims come in reverse",
		"a move is a new job", "any token will do", "Extend does nothing", "no limit of attempts",
		"recurring jobs die", "Snooze counts", "retained too long", "no dead copy",
		"nothing comes next", "no pause", "always Keep", "keys end with a zero",
		"an Add that is tried again is another", "Cancel does not say that a job runs",
		"Requeue counts attempts", "Purge takes all", "drops never", "no limits on namespaces",
		"leases are dropped", "fresh jobs wait", "fresh jobs take all",
		"last attempts are claimed ahead", "nothing is claimed ahead", "Kept stays",
		"Get lacks a field", "List lacks a job of a page", "Queues lacks a field",
		"Due leaves out the end", "Watch tells nothing",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runMutant(t, "TestMutantCompared", name)
			require.Contains(t, out, "Error Trace", "it fails by itself")
		})
	}
}

func TestMutants(t *testing.T) {
	var names []string
	for name := range mutants {
		names = append(names, name)
	}
	for name := range readMutants {
		names = append(names, name)
	}
	var mu sync.Mutex
	failed := map[string][]string{} // mutants by test
	t.Run("each fails", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				out := runMutant(t, "TestMutant", name)
				n := 0
				for line := range strings.Lines(out) {
					if _, test, ok := strings.Cut(line, "--- FAIL: TestMutant/"); ok {
						test, _, _ = strings.Cut(test, " ")
						mu.Lock()
						failed[test] = append(failed[test], name)
						mu.Unlock()
						n++
					}
				}
				require.NotZero(t, n, "%s", out)
			})
		}
	})
	for _, group := range testGroups {
		for _, test := range group {
			if test.needs == nil || test.needs(Config{}) {
				require.NotEmpty(t, failed[test.name], "no mutant fails %s", test.name)
			}
		}
	}
}
