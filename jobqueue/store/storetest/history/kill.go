package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// Kill has the test binary run itself as a process that works with the store of a path, kills it at
// random points for so many rounds, lets what is left be delivered, and checks the history. It is
// called by a test that does nothing else, with an open that always does the same:
//
//	func TestKill(t *testing.T) { history.Kill(t, open, 20) }
//
// A machine so slow that its processes get nothing done has more rounds.
func Kill(t *testing.T, open func(path string) (*jobqueue.Client, error), rounds int) {
	Run(t, Config{Open: open, Rounds: rounds})
}

// A Config says what Run does.
type Config struct {
	Open   func(path string) (*jobqueue.Client, error)
	Rounds int

	// Beside is how many processes work with the store at the same time, or 0 for a store that one
	// process has to itself and that ends leases when it is opened.
	Beside int
	Env    []string // of the processes, beside that of the test

	// Trouble is called in each round, while the processes work.
	Trouble func(round int)
}

// Child reports whether this is a process that Run has started. Then a test calls Run at once.
func Child() bool { return os.Getenv(envDir) != "" }

// Run does what Kill does, as the Config says.
func Run(t *testing.T, config Config) {
	if dir := os.Getenv(envDir); dir != "" {
		child(config.Open, dir)
	}
	k := killer{T: t, config: config, dir: t.TempDir(), seed: uint64(time.Now().UnixNano())}
	k.random = rand.New(rand.NewPCG(k.seed, 0))
	t.Logf("seed %d", k.seed)
	var err error
	k.log, err = OpenLog(filepath.Join(k.dir, logName), 0)
	require.NoError(t, err)
	defer k.log.file.Close()
	defer k.killAll()
	for n := 0; n < config.Rounds || n < 10*config.Rounds && !k.sum().rich(); n++ {
		k.round(n)
	}
	k.killAll()
	for most := 3 * k.process; !k.drain(); {
		if most--; most == 0 {
			t.Error("a poison job kills processes without an end")
			break
		}
	}
	events := k.read()
	sum := Summarize(events)
	t.Logf("%d processes, %d events: %+v", k.process, len(events), sum)
	for i, v := range Check(events) {
		if t.Errorf("%v", v); i == 5 {
			break
		}
	}
	if !sum.rich() || sum.Dead == 0 {
		t.Error("the history lacks what it is about")
	}
	if t.Failed() {
		kept := filepath.Join(os.TempDir(), fmt.Sprintf("jobqueue-history-%d", k.seed))
		if os.CopyFS(kept, os.DirFS(k.dir)) == nil {
			t.Logf("the log and the store are kept in %s", kept)
		}
	}
}

// rich says whether the processes did all that a history should have.
func (s Summary) rich() bool {
	for _, n := range []int{s.Jobs, s.Again, s.Cancelled, s.Moved, s.Acked, s.Refused, s.Poison} {
		if n == 0 {
			return false
		}
	}
	return true
}

// A killer runs processes.
type killer struct {
	*testing.T
	config  Config
	dir     string
	log     *Log
	seed    uint64
	random  *rand.Rand
	process int
	running []*process
}

// round starts as many processes as are to run and kills one: now and then while it opens the
// store, mostly when it has worked for a while.
func (k *killer) round(n int) {
	for i := 0; i < len(k.running); {
		select {
		case err := <-k.running[i].ended: // it has killed itself
			k.running[i].ended <- err
			k.ended(k.running[i])
			k.running = slices.Delete(k.running, i, i+1)
		default:
			i++
		}
	}
	for len(k.running) < max(k.config.Beside, 1) {
		k.running = append(k.running, k.start(false))
	}
	victim := k.random.IntN(len(k.running))
	p := k.running[victim]
	opened := k.random.IntN(4) > 0
	wait := time.Duration(k.random.IntN(400)) * time.Millisecond
	if opened {
		<-p.opened
	}
	time.Sleep(wait)
	if k.config.Trouble != nil {
		k.config.Trouble(n)
	}
	k.running = slices.Delete(k.running, victim, victim+1)
	_ = p.cmd.Process.Kill() // unless it killed itself
	k.ended(p)
}

// killAll kills all processes.
func (k *killer) killAll() {
	for _, p := range k.running {
		_ = p.cmd.Process.Kill()
		k.ended(p)
	}
	k.running = nil
}

// drain runs a process until nothing is left to deliver, or returns false if it was killed by a
// job.
func (k *killer) drain() bool {
	p := k.start(true)
	timer := time.AfterFunc(time.Minute, func() {
		k.Error("not all was delivered in a minute")
		_ = p.cmd.Process.Kill()
	})
	defer timer.Stop()
	done := k.ended(p)
	if k.Failed() {
		k.FailNow()
	}
	return done
}

func (k *killer) start(drain bool) *process {
	k.process++
	cmd := exec.Command(os.Args[0], "-test.run=^"+k.Name()+"$")
	cmd.Env = append(append(os.Environ(), k.config.Env...),
		envDir+"="+k.dir,
		envProcess+"="+strconv.Itoa(k.process),
		envSeed+"="+strconv.FormatUint(k.seed+uint64(k.process), 10),
		envDrain+"="+strconv.FormatBool(drain),
		envBeside+"="+strconv.FormatBool(k.config.Beside > 0),
	)
	p := &process{number: k.process, cmd: cmd}
	p.opened, p.ended = make(chan struct{}), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = p, p
	_, err := cmd.StdinPipe() // ends with this process
	require.NoError(k, err)
	require.NoError(k, cmd.Start())
	go func() {
		err := cmd.Wait()
		if k.config.Beside > 0 {
			killed := k.log.Now(Killed, "")
			killed.Process = p.number
			k.log.Write(killed)
		}
		p.open()
		p.ended <- err
	}()
	return p
}

// ended waits for a process, which may have been done before, and returns whether it ended by
// itself and well.
func (k *killer) ended(p *process) bool {
	err := <-p.ended
	p.ended <- err // for another call
	if text := strings.TrimSpace(strings.Replace(p.text.String(), opened, "", 1)); text != "" {
		k.Logf("process %d: %s", p.number, text)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		k.Fatalf("process %d failed: %v", p.number, err)
	}
	return err == nil
}

func (k *killer) read() []Event {
	events, err := ReadLog(filepath.Join(k.dir, logName))
	if !errors.Is(err, os.ErrNotExist) { // no process has come so far
		require.NoError(k, err)
	}
	return events
}

func (k *killer) sum() Summary { return Summarize(k.read()) }

// A process is one that was started.
type process struct {
	number int
	cmd    *exec.Cmd
	text   strings.Builder // what it writes; package exec makes one Write at a time
	once   sync.Once
	opened chan struct{} // closed when it says that it has opened the store, or has ended
	ended  chan error
}

const opened = "opened\n"

func (p *process) open() { p.once.Do(func() { close(p.opened) }) }

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	if p.text.Write(b); strings.Contains(p.text.String(), opened) {
		p.open()
	}
	return len(b), nil
}

const (
	envDir     = "JOBQUEUE_HISTORY_DIR"
	envProcess = "JOBQUEUE_HISTORY_PROCESS"
	envSeed    = "JOBQUEUE_HISTORY_SEED"
	envDrain   = "JOBQUEUE_HISTORY_DRAIN"
	envBeside  = "JOBQUEUE_HISTORY_BESIDE"
	logName    = "history.log"

	handled = "history/handled" // worked on by a handler
	pulled  = "history/pulled"  // by pullers
	slow    = "history/slow"    // by a puller that lets leases run out
	poison  = "history/poison"  // by a handler with a short lease, as none of it comes to an end

	// So long that a lease does not run out on a machine under load. Beside others, the leases of
	// a killed process have to be waited for.
	lease       = 30 * time.Second
	besideLease = 10 * time.Second
)

var queues = []string{handled, pulled, slow, poison}

// What a job does is the first word of its body.
const (
	doGood   = "good"
	doRest   = "rest" // takes a while
	doFail   = "fail" // fails once
	doSnooze = "snooze"
	doBad    = "bad"    // fails always
	doPoison = "poison" // kills the process
)

// A worker is the process that is killed.
type worker struct {
	log    *Log
	client *jobqueue.Client
	number int
	seed   uint64
	drain  bool
	beside bool
	lease  time.Duration
	before []string // jobs of processes before this one that may be there
}

// child is the process that is killed. It does not return.
func child(open func(path string) (*jobqueue.Client, error), dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	go func() { // a test that is killed leaves no process behind
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	w := &worker{drain: os.Getenv(envDrain) == "true", beside: os.Getenv(envBeside) == "true"}
	var err error
	w.number, err = strconv.Atoi(os.Getenv(envProcess))
	fail(err)
	w.seed, err = strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	fail(err)
	if w.lease = besideLease; !w.beside {
		events, err := ReadLog(filepath.Join(dir, logName))
		if !errors.Is(err, os.ErrNotExist) {
			fail(err)
		}
		w.lease, w.before = lease, recent(events)
	}
	w.client, err = open(filepath.Join(dir, "jobs.db"))
	fail(err)
	w.log, err = OpenLog(filepath.Join(dir, logName), w.number)
	fail(err)
	start := w.log.Now(Start, "")
	start.Beside = w.beside
	w.log.Write(start)
	fmt.Print(opened)
	fail(w.run())
	os.Exit(0)
}

// recent returns the jobs that were added last and have not been heard of since.
func recent(events []Event) (names []string) {
	heard := map[string]bool{}
	for i := len(events) - 1; i >= 0 && len(names) < 100; i-- {
		e := events[i]
		if e.Kind == Added && e.Err == OK && !heard[e.Job] && !isPoison(e.Job) {
			names = append(names, e.Job)
		}
		heard[e.Job] = true
	}
	return names
}

const drivers = 6

func (w *worker) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.client.Handle(handled, w.handle,
		jobqueue.Workers(4), jobqueue.Attempts(0), jobqueue.Lease(w.lease))
	w.client.Handle(poison, w.handle, jobqueue.Workers(1), jobqueue.Lease(time.Second))
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.client.Run(ctx); err != nil {
			fmt.Println("Run:", err)
			os.Exit(1)
		}
	})
	for i := range 2 {
		group.Go(func() { w.pull(ctx, i) })
	}
	group.Go(func() { w.pullSlowly(ctx) })
	if !w.drain {
		for i := range drivers {
			go w.drive(ctx, i)
		}
		select {} // until it is killed
	}
	for {
		left, err := w.left(ctx)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	group.Wait()
	for _, queue := range queues {
		for state := jobqueue.Delayed; state <= jobqueue.Dead; state++ {
			for job, err := range w.client.Jobs(context.Background(), queue, state) {
				if err != nil {
					return err
				}
				e := w.log.Now(Found, job.Key)
				e.Attempt, e.State = job.Attempts, "live"
				if state == jobqueue.Dead {
					e.State = "dead"
				}
				w.log.Write(e)
			}
		}
	}
	w.log.Write(w.log.Now(End, ""))
	return w.client.Close()
}

// left counts the live jobs.
func (w *worker) left(ctx context.Context) (n int, err error) {
	for _, queue := range queues {
		for state := jobqueue.Delayed; state <= jobqueue.Leased; state++ {
			jobs, _, err := w.client.List(ctx, queue, state, "", 1)
			if err != nil {
				return 0, err
			}
			n += len(jobs)
		}
	}
	return n, nil
}

// drive adds jobs, and cancels and moves some that it or another process has added. It is the only
// one that does so with a job, so that the calls for one job come one after the other.
func (w *worker) drive(ctx context.Context, i int) {
	r := rand.New(rand.NewPCG(w.seed, uint64(i)))
	var mine []string
	for n, name := range w.before {
		if n%drivers == i {
			mine = append(mine, name)
		}
	}
	if i == 0 && r.IntN(4) == 0 {
		w.add(ctx, r, fmt.Sprintf("%s-%d-%s", poison, w.number, doPoison), doPoison, 3)
	}
	for n := 0; ; n++ {
		if w.beside { // or one process cannot deliver what several have added
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
		switch r.IntN(4) {
		case 0, 1:
			queue := []string{handled, handled, handled, pulled, pulled, slow}[r.IntN(6)]
			name := fmt.Sprintf("%s-%d-%d-%d", queue, w.number, i, n)
			does, most := doGood, 0
			switch r.IntN(10) {
			case 0:
				does = doFail
			case 1:
				does = doSnooze
			case 2, 3:
				does = doRest
			case 4:
				does, most = doBad, 3
			}
			w.add(ctx, r, name, does, most)
			if queue != slow {
				mine = append(mine, name)
			}
		case 2:
			if len(mine) == 0 {
				continue
			}
			at := r.IntN(len(mine))
			w.cancel(ctx, mine[at])
			mine = append(mine[:at], mine[at+1:]...)
		case 3:
			if len(mine) == 0 {
				continue
			}
			w.reschedule(ctx, r, mine[r.IntN(len(mine))])
		}
		if len(mine) > 50 {
			mine = mine[25:]
		}
	}
}

// isPoison says whether a job kills the process. No one cancels it.
func isPoison(name string) bool { return strings.HasSuffix(name, doPoison) }

// queueOf returns the queue of a job, which its name begins with.
func queueOf(name string) string { return name[:strings.IndexByte(name, '-')] }

func outcome(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, jobqueue.ErrRunning):
		return Running
	case errors.Is(err, jobqueue.ErrNotFound):
		return NotFound
	case errors.Is(err, jobqueue.ErrLeased):
		return Leased
	case errors.Is(err, jobqueue.ErrLeaseLost):
		return Lost
	case errors.Is(err, jobqueue.ErrUnknown):
		return Unknown
	}
	return err.Error()
}

func (w *worker) add(ctx context.Context, r *rand.Rand, name, does string, most int) {
	e := w.log.Now(Add, name)
	e.Most = most
	wait := time.Duration(r.IntN(500_000)) * time.Microsecond
	opts := []jobqueue.AddOption{jobqueue.Key(name)}
	if most > 0 {
		opts = append(opts, jobqueue.MaxAttempts(most))
	}
	if r.IntN(2) == 0 {
		e.In = wait
		opts = append(opts, jobqueue.In(wait))
	} else {
		e.At = e.Wall + int64(wait)
		opts = append(opts, jobqueue.At(time.Unix(0, e.At)))
	}
	w.log.Write(e)
	id, err := w.client.Add(ctx, queueOf(name), []byte(does), opts...)
	e = w.log.Now(Added, name)
	if e.Err = outcome(err); err == nil {
		e.ID = id.String()
	}
	w.log.Write(e)
}

func (w *worker) cancel(ctx context.Context, name string) {
	w.log.Write(w.log.Now(Cancel, name))
	err := w.client.Cancel(ctx, queueOf(name), jobqueue.ByKey(name))
	e := w.log.Now(Cancelled, name)
	e.Err = outcome(err)
	w.log.Write(e)
}

func (w *worker) reschedule(ctx context.Context, r *rand.Rand, name string) {
	e := w.log.Now(Reschedule, name)
	wait := time.Duration(r.IntN(300_000)) * time.Microsecond
	var err error
	if r.IntN(2) == 0 {
		e.In = wait
		w.log.Write(e)
		err = w.client.Reschedule(ctx, queueOf(name), jobqueue.ByKey(name), wait)
	} else {
		e.At = e.Wall + int64(wait)
		w.log.Write(e)
		err = w.client.RescheduleAt(ctx, queueOf(name), jobqueue.ByKey(name), time.Unix(0, e.At))
	}
	e = w.log.Now(Rescheduled, name)
	e.Err = outcome(err)
	w.log.Write(e)
}

func (w *worker) begin(job *jobqueue.Job) Event {
	e := w.log.Now(Begin, job.Key)
	e.ID, e.Attempt = job.ID.String(), job.Attempts
	return e
}

// attempt works on a job and returns what a handler returns.
func (w *worker) attempt(job *jobqueue.Job) error {
	const wait = 15 * time.Millisecond
	e := w.log.Now(Return, job.Key)
	e.Attempt, e.In = job.Attempts, wait
	switch does := string(job.Body); {
	case does == doPoison:
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		fmt.Println("the poison had no effect:", err)
		select {}
	case does == doBad, does == doFail && job.Attempts == 1:
		e.Err = Retry
		w.log.Write(e)
		return jobqueue.RetryIn(wait)
	case does == doSnooze && time.Since(job.Added) < 400*time.Millisecond:
		e.Err = Snooze
		w.log.Write(e)
		return jobqueue.Snooze(wait)
	case does == doRest:
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (w *worker) handle(_ context.Context, job *jobqueue.Job) error {
	w.log.Write(w.begin(job))
	if err := w.attempt(job); err != nil {
		return err
	}
	e := w.log.Now(Return, job.Key)
	e.Attempt = job.Attempts
	w.log.Write(e)
	return nil
}

// pull works on jobs that it reserves. An acknowledgement that it is told of must hold.
func (w *worker) pull(ctx context.Context, i int) {
	for {
		since := int64(time.Since(w.log.start))
		got, err := w.client.Reserve(ctx, pulled, 1+i*3, w.lease)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			fmt.Println("Reserve:", err)
			os.Exit(1)
		}
		for _, d := range got {
			e := w.begin(&d.Job)
			if w.beside {
				e.Lease, e.Since = w.lease, since
			}
			w.log.Write(e)
			if err := w.attempt(&d.Job); err != nil {
				_ = d.Nack(ctx, err) // its lease may be lost by a Cancel
				continue
			}
			w.ack(ctx, d)
		}
	}
}

func (w *worker) ack(ctx context.Context, d *jobqueue.Delivery) {
	e := w.log.Now(Ack, d.Key)
	e.Attempt = d.Attempts
	w.log.Write(e)
	err := d.Ack(ctx)
	e = w.log.Now(Acked, d.Key)
	e.Attempt, e.Err = d.Attempts, outcome(err)
	w.log.Write(e)
}

// pullSlowly reserves jobs, lets their leases run out, reserves them again and acknowledges them by
// the old lease, which must be refused, and by the new one.
func (w *worker) pullSlowly(ctx context.Context) {
	const short = 20 * time.Millisecond
	reserve := func(lease time.Duration) []*jobqueue.Delivery {
		since := int64(time.Since(w.log.start))
		got, err := w.client.TryReserve(ctx, slow, 3, lease)
		if err != nil && ctx.Err() == nil {
			fmt.Println("TryReserve:", err)
			os.Exit(1)
		}
		for _, d := range got {
			e := w.begin(&d.Job)
			e.Lease, e.Since = lease, since
			w.log.Write(e)
		}
		return got
	}
	for ctx.Err() == nil {
		old := reserve(short)
		time.Sleep(short + time.Millisecond)
		again := reserve(w.lease)
		for _, d := range old {
			for _, other := range again {
				if d.ID == other.ID {
					w.ack(ctx, d)
				}
			}
		}
		for _, d := range again {
			w.ack(ctx, d)
		}
	}
}
