package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// do carries out one operation.
func do[T store.Op](s *Store, op T) (T, error) {
	err := s.Do(context.Background(), []store.Op{op})
	if err == nil {
		err = op.Outcome().Err
	}
	return op, err
}

func mustOpen(t testing.TB, fs vfs.FS, opts ...Option) *Store {
	s, err := Open("db", append(opts, WithFS(fs))...)
	require.NoError(t, err)
	return s
}

func mustVerify(t testing.TB, fs vfs.FS) {
	r, err := Verify("db", WithFS(fs))
	require.NoError(t, err)
	require.Empty(t, r.Problems)
}

// history is what callers were told. The values of claimed are attempts.
type history struct {
	mu                       sync.Mutex
	added, cancelled, ending map[store.ID]bool
	acked                    map[store.ID]bool
	claimed                  map[store.ID]int
}

func newHistory() *history {
	return &history{added: map[store.ID]bool{}, cancelled: map[store.ID]bool{},
		ending: map[store.ID]bool{}, acked: map[store.ID]bool{}, claimed: map[store.ID]int{}}
}

func (h *history) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *history) clone() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := newHistory()
	copyTo := func(to, from map[store.ID]bool) {
		for id := range from {
			to[id] = true
		}
	}
	copyTo(c.added, h.added)
	copyTo(c.cancelled, h.cancelled)
	copyTo(c.ending, h.ending)
	copyTo(c.acked, h.acked)
	for id, n := range h.claimed {
		c.claimed[id] = n
	}
	return c
}

// load works on a store until it fails or stop is set.
func (h *history) load(s *Store, stop *atomic.Bool, seed uint64) *sync.WaitGroup {
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			for i := 0; !stop.Load(); i++ {
				in := time.Duration(r.IntN(20)) * time.Millisecond
				add := &store.Add{When: store.When{In: in}}
				add.Job = store.Job{Queue: "q", Key: fmt.Sprintf("k%d-%d", c, i),
					Body: make([]byte, r.IntN(200))}
				if _, err := do(s, add); err != nil {
					return
				}
				h.with(func() { h.added[add.ID] = true })
				if r.IntN(4) == 0 {
					h.with(func() { h.ending[add.ID] = true })
					if _, err := do(s,
						&store.Cancel{Queue: "q", Ref: store.Ref{Key: add.Job.Key}}); err == nil {
						h.with(func() { h.cancelled[add.ID] = true })
					}
				} else if r.IntN(3) == 0 {
					do(s, &store.Reschedule{Queue: "q", Ref: store.Ref{ID: add.ID},
						When: store.When{In: time.Millisecond}})
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for n := 0; !stop.Load(); {
				claim, err := do(s, &store.Claim{Queue: "q", Max: 20, Lease: time.Hour})
				if err != nil {
					return
				}
				for _, j := range claim.Jobs {
					h.with(func() { h.claimed[j.ID] = j.Attempts })
					if n++; n%3 == 0 {
						continue // stays leased
					}
					h.with(func() { h.ending[j.ID] = true })
					lazy := n%2 == 0
					_, err := do(s, &store.Finish{Queue: "q", ID: j.ID, Token: j.Token, Lazy: lazy})
					if err == nil && !lazy {
						h.with(func() { h.acked[j.ID] = true })
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return &wg
}

// check opens what is left and compares it with what was told before, and what was under way after.
func (h *history) check(t *testing.T, fs vfs.FS, after *history, claimsCount bool) {
	mustVerify(t, fs)
	s := mustOpen(t, fs)
	here := map[store.ID]store.Job{}
	for _, state := range []store.State{store.Delayed, store.Ready} {
		jobs, _, err := s.List(context.Background(), "q", state, "", 1<<30)
		require.NoError(t, err)
		for _, j := range jobs {
			here[j.ID] = j
		}
	}
	for id := range h.added {
		j, ok := here[id]
		if !ok {
			require.True(t, after.ending[id], "job %v is lost", id)
			continue
		}
		require.False(t, h.acked[id], "job %v came back after an acknowledgement", id)
		require.False(t, h.cancelled[id], "job %v came back after a Cancel", id)
		if claimsCount {
			require.GreaterOrEqual(t, j.Attempts, h.claimed[id], "attempts of %v", id)
		}
		require.LessOrEqual(t, j.Attempts, 1)
		got, err := s.Get(context.Background(), "q", store.Ref{Key: j.Key})
		require.NoError(t, err)
		require.Equal(t, id, got.ID)
	}
	require.NoError(t, s.Close())
	mustVerify(t, fs)
}

// TestPowerLoss takes a copy of what was synced, and of some of what was not, under load.
func TestPowerLoss(t *testing.T) {
	for round := range 12 {
		percent := []int{0, 50, 100}[round%3]
		mem := vfs.NewCrashableMem()
		s := mustOpen(t, mem)
		h, stop := newHistory(), &atomic.Bool{}
		wg := h.load(s, stop, uint64(round))
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond)
		before := h.clone()
		left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent,
			RNG: rand.New(rand.NewPCG(uint64(round), 1))})
		after := h.clone()
		stop.Store(true)
		wg.Wait()
		require.NoError(t, s.Close())
		before.check(t, left, after, percent == 100)
		if percent == 100 {
			require.NotEmpty(t, before.claimed)
		}
	}
}

// TestPowerLossWithSyncEvery shows that only what was done in the time since the last sync is lost.
func TestPowerLossWithSyncEvery(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem, WithSyncEvery(10*time.Millisecond))
	h, stop := newHistory(), &atomic.Bool{}
	wg := h.load(s, stop, 1)
	time.Sleep(50 * time.Millisecond)
	before := h.clone()
	require.Eventually(t, func() bool { return !s.disk.later.Load() }, 5*time.Second,
		time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	// A sync that began after before was taken has ended when later is unset twice.
	require.Eventually(t, func() bool { return !s.disk.later.Load() && s.disk.waiting.Load() == 0 },
		5*time.Second, time.Millisecond)
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	after := h.clone()
	require.NoError(t, s.Close())
	before.check(t, left, after, true)
}

// TestFailingDisk has writes, syncs or creations fail from one moment on. All callers get the
// error, nothing hangs, and what is on the disk has all that was reported done.
func TestFailingDisk(t *testing.T) {
	kinds := map[string][]errorfs.OpKind{
		"write":  {errorfs.OpFileWrite},
		"sync":   {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
		"create": {errorfs.OpCreate, errorfs.OpReuseForWrite},
		"space": {errorfs.OpFileWrite, errorfs.OpCreate, errorfs.OpReuseForWrite,
			errorfs.OpFilePreallocate},
	}
	for name, list := range kinds {
		for round := range 4 {
			t.Run(fmt.Sprint(name, round), func(t *testing.T) {
				var bad atomic.Bool
				mem := vfs.NewMem()
				s := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if bad.Load() && slices.Contains(list, op.Kind) {
						return errors.New("injected")
					}
					return nil
				})))
				h, stop := newHistory(), &atomic.Bool{}
				wg := h.load(s, stop, uint64(round))
				time.Sleep(time.Duration(10+10*round) * time.Millisecond)
				bad.Store(true)
				if name == "create" { // which nothing needs at once
					time.Sleep(50 * time.Millisecond)
					stop.Store(true)
				}
				wg.Wait()
				if name != "create" {
					_, err := do(s, &store.Add{Job: store.Job{Queue: "q"}})
					require.ErrorIs(t, err, store.ErrFailed)
					require.NotErrorIs(t, err, store.ErrUnknown)
					_, err = s.Get(context.Background(), "q", store.Ref{ID: 1})
					require.ErrorIs(t, err, store.ErrFailed)
					require.ErrorIs(t, s.Close(), store.ErrFailed)
				} else {
					s.Close()
				}
				bad.Store(false)
				h.check(t, mem, h, true)
			})
		}
	}
}

// TestFailedGroup has the sync of what many callers asked for fail. None of them is told that it
// was done. Those who were under way get ErrUnknown too: their jobs may be found when the store is
// opened anew, as nothing takes them back, and are not there after a power loss. The jobs of those
// who came later are never found.
func TestFailedGroup(t *testing.T) {
	var bad atomic.Bool
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if bad.Load() && op.Kind == errorfs.OpFileSyncData {
			return errors.New("injected")
		}
		return nil
	})))
	const callers = 64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	bad.Store(true)
	for i := range callers {
		wg.Go(func() {
			_, errs[i] = do(s, &store.Add{Job: store.Job{Queue: "q", Key: fmt.Sprint(i)}})
		})
	}
	wg.Wait()
	_, late := do(s, &store.Add{Job: store.Job{Queue: "q", Key: "late"}})
	require.ErrorIs(t, late, store.ErrFailed)
	require.NotErrorIs(t, late, store.ErrUnknown)
	require.ErrorIs(t, s.Close(), store.ErrFailed)
	lost := mem.CrashClone(vfs.CrashCloneCfg{})

	s = mustOpen(t, mem)
	unknown, found := 0, 0
	for i, err := range errs {
		require.ErrorIs(t, err, store.ErrFailed)
		require.ErrorContains(t, err, "injected")
		_, gone := s.Get(context.Background(), "q", store.Ref{Key: fmt.Sprint(i)})
		if errors.Is(err, store.ErrUnknown) {
			unknown++
		} else {
			require.ErrorIs(t, gone, store.ErrNotFound)
		}
		if gone == nil {
			found++
		}
	}
	t.Logf("%d callers were told ErrUnknown, the jobs of %d are there", unknown, found)
	require.NotZero(t, unknown)
	require.NotZero(t, found)
	_, err := s.Get(context.Background(), "q", store.Ref{Key: "late"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NoError(t, s.Close())
	mustVerify(t, mem)

	s = mustOpen(t, lost)
	infos, err := s.Queues(context.Background())
	require.NoError(t, err)
	require.Empty(t, infos)
	require.NoError(t, s.Close())
}

// TestFullDisk has tables fail to be written while the log can be: callers are held back, get the
// error, and go on when there is space again.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a few memtables")
	}
	var full atomic.Bool
	mem := vfs.NewMem()
	s := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && !vital(op.Path) &&
			(op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) {
			return errors.New("no space left")
		}
		return nil
	})))
	full.Store(true)
	add := func() error {
		var ops []store.Op
		for range 8 {
			ops = append(ops, &store.Add{Job: store.Job{Queue: "q", Body: make([]byte, 1<<20)}})
		}
		return s.Do(context.Background(), ops)
	}
	stored := 0
	var err error
	for range 100 {
		if err = add(); err != nil {
			break
		}
		stored += 8
	}
	require.ErrorContains(t, err, "no space left")
	require.NotErrorIs(t, err, store.ErrUnknown)
	full.Store(false)
	require.Eventually(t, func() bool { return add() == nil }, 20*time.Second, 10*time.Millisecond)
	infos, err := s.Queues(context.Background())
	require.NoError(t, err)
	require.Equal(t, stored+8, infos[0].Ready)
	require.NoError(t, s.Close())
	mustVerify(t, mem)
}

func TestSecondProcess(t *testing.T) {
	if path := os.Getenv("PEBBLESTORE_OPEN"); path != "" {
		_, err := Open(path)
		if errors.Is(err, store.ErrLocked) {
			os.Exit(7)
		}
		os.Exit(8)
	}
	path := t.TempDir()
	s, err := Open(path)
	require.NoError(t, err)
	_, err = Open(path)
	require.ErrorIs(t, err, store.ErrLocked)
	require.Equal(t, 7, runSelf(t, "TestSecondProcess", "PEBBLESTORE_OPEN="+path))
	require.NoError(t, s.Close())
	s, err = Open(path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestPowerLossAfterPart has a group that was applied before its end, to be read by an operation
// that then wrote nothing: it is synced all the same.
func TestPowerLossAfterPart(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem)
	first, second := &store.Add{Job: store.Job{Queue: "q",
		Key: "k"}}, &store.Add{Job: store.Job{Queue: "q", Key: "k"}, On: store.Fail}
	require.NoError(t, s.Do(context.Background(), []store.Op{first, second}))
	require.NoError(t, first.Err)
	require.ErrorIs(t, second.Err, store.ErrKeyExists)
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	s = mustOpen(t, left)
	_, err := s.Get(context.Background(), "q", store.Ref{ID: first.ID})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestChosenInGroup cancels a job by the ID that an Add of the same group chose, the first one
// ever.
func TestChosenInGroup(t *testing.T) {
	s := mustOpen(t, vfs.NewMem())
	add, cancel := &store.Add{Job: store.Job{Queue: "q", ID: 1 << 40}}, &store.Cancel{Queue: "q",
		Ref: store.Ref{ID: 1 << 40}}
	_, err := do(s, &store.Add{Job: store.Job{Queue: "q"}})
	require.NoError(t, err)
	require.NoError(t, s.Do(context.Background(), []store.Op{add, cancel}))
	require.NoError(t, errors.Join(add.Err, cancel.Err))
	require.NoError(t, s.Close())
}
