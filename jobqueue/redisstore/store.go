// Package redisstore keeps the jobs of a job queue in Redis, for any number of processes: one
// server, Sentinel or a Cluster, through github.com/redis/go-redis.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}})
//	q := jobqueue.New(redisstore.New(client))
//
// All that changes jobs is one Lua script, so each step is atomic. The time of the server is the
// only clock. layout.go has the keys, do.lua the steps, and call.go what happens if a server is
// away or an answer is lost.
package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Store is a store.Store in Redis. It is made by New.
type Store struct {
	client  redis.UniversalClient
	set     settings
	session string // 16 hex digits
	ending  chan struct{}
	users   sync.WaitGroup // calls and goroutines that use the client; added to with mu locked

	ready  atomic.Bool // the server was checked and shards is set
	check  sync.Mutex  // held while the server is checked
	shards int         // written with check locked, read once ready is set

	numbers atomic.Uint64 // of calls
	low     atomic.Uint32 // the low half of the last ID of a job with a key
	offset  atomic.Int64  // of the server's clock to this process's, in milliseconds
	known   sync.Map      // the names that are in the set of queues
	health  health

	mu     sync.Mutex // guards what follows
	closed bool
	watch  func(queue string, in time.Duration)
	lanes  []int // free ones
	lane   int   // the last one
	lost   map[tag][]lostCall
	queues map[string]*queue // that were claimed from
	follow chan string       // to the watcher; nil without one
}

// An Option changes what New makes.
type Option func(*settings)

type settings struct {
	prefix   string
	shards   int // 0 for what the server says
	patience time.Duration
	log      *slog.Logger
	evicting bool
	replicas int              // that WAIT waits for; 0 for none
	files    int              // the append-only files that WAITAOF waits for; 0 for none
	clock    func() time.Time // of tests; nil for the server's
}

// WithPrefix has all keys begin with prefix instead of "jobqueue". It must not hold braces. Stores
// with the prefixes shop and shop:2 may meet, as a queue of the first may be named 2:letters.
func WithPrefix(prefix string) Option {
	if prefix == "" || strings.ContainsAny(prefix, "{}") {
		panic("redisstore: WithPrefix of a text that is empty or has braces")
	}
	return func(s *settings) { s.prefix = prefix }
}

// WithShards spreads each queue over n parts, which a Cluster keeps on its nodes. By default there
// is 1, and on a Cluster there are 8. The number is stored by the first call, and a Store that
// asks for another one gets ErrShards. With several shards, the order of claims and limits hold for
// each of them: jobs that are due at about the same time may be claimed in another order, and each
// shard has its share of a limit.
func WithShards(n int) Option {
	if n < 1 || n > maxShards {
		panic("redisstore: WithShards of a number below 1 or above 4096")
	}
	return func(s *settings) { s.shards = n }
}

// WithPatience sets for how long a call is tried again while the server cannot be reached or cannot
// serve it, by default 10 s.
func WithPatience(d time.Duration) Option {
	if d <= 0 {
		panic("redisstore: WithPatience of a duration that is not positive")
	}
	return func(s *settings) { s.patience = d }
}

// WithEviction accepts a server that removes keys when its memory is full, which loses jobs. By
// default calls return ErrEviction.
func WithEviction() Option {
	return func(s *settings) { s.evicting = true }
}

// The reasons for which calls fail, beside those of package store.
var (
	// ErrUnavailable says that no server could carry out the call in the time of WithPatience.
	ErrUnavailable = errors.New("redis is unavailable")

	// ErrMemory refuses what needs memory while that of the server is full.
	ErrMemory = errors.New("the memory of redis is full")

	// ErrAuth says that the server refuses the user, the password or a command.
	ErrAuth = errors.New("redis refuses access")

	// ErrEviction says that maxmemory-policy would have the server remove jobs. Set it to
	// noeviction or to one of the volatile policies.
	ErrEviction = errors.New("redis removes keys when its memory is full")

	// ErrVersion says that the server is older than Redis 5, or than an option requires.
	ErrVersion = errors.New("redis is too old")

	// ErrAppendOnly says that the server has no append-only file, which WithAppendOnly requires.
	ErrAppendOnly = errors.New("redis has no append-only file")

	// ErrReplicas says that too few servers have confirmed in the time of WithPatience what
	// WithReplicas and WithAppendOnly ask for. The call is carried out, but a failover may lose it,
	// so the error also matches store.ErrUnknown.
	ErrReplicas = errors.New("too few servers of redis have confirmed the call")

	// ErrShards says that the jobs are spread over another number of shards than WithShards says.
	ErrShards = errors.New("redis has another number of shards")

	// ErrChosenID refuses a job whose ID, chosen by the caller, belongs to another shard than its
	// key.
	ErrChosenID = errors.New("the id belongs to another shard than the key")
)

// New returns a Store. It does not wait for the server, which is checked before the first call; see
// Check. The client stays the caller's, who closes it after the Store.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{
		client: client,
		set:    settings{prefix: "jobqueue", patience: 10 * time.Second, log: slog.Default()},
		ending: make(chan struct{}),
		lost:   map[tag][]lostCall{},
		queues: map[string]*queue{},
	}
	for _, opt := range opts {
		opt(&s.set)
	}
	var random [12]byte
	rand.Read(random[:])
	s.session = hex.EncodeToString(random[:8])
	s.low.Store(binary.BigEndian.Uint32(random[8:]))
	return s
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	s.closed = true
	close(s.ending)
	s.mu.Unlock()
	s.users.Wait()
	return nil
}

// begin checks the server once and counts a user, who calls users.Done.
func (s *Store) begin(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	s.users.Add(1)
	s.mu.Unlock()
	if err := s.prepare(ctx); err != nil {
		s.users.Done()
		return err
	}
	return nil
}

// Check returns why the server cannot be used, or nil. All calls return the same until it can.
func (s *Store) Check(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.users.Done()
	return nil
}

func (s *Store) prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	s.check.Lock()
	defer s.check.Unlock()
	if s.ready.Load() {
		return nil
	}
	err := s.repeat(ctx, func(ctx context.Context) error {
		if err := s.checkServers(ctx); err != nil {
			return err
		}
		return s.readMeta(ctx)
	})
	if err != nil {
		return err
	}
	s.ready.Store(true)
	return nil
}

// clustered reports whether there are several servers with jobs.
func (s *Store) clustered() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

// checkServers looks at the version and the eviction policy of each server that has jobs.
func (s *Store) checkServers(ctx context.Context) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, s.checkServer)
	}
	return s.judge(s.client.Info(ctx).Result())
}

func (s *Store) checkServer(ctx context.Context, c *redis.Client) error {
	return s.judge(c.Info(ctx).Result())
}

// judge says whether a server with this INFO can be used. CONFIG is often forbidden.
func (s *Store) judge(info string, err error) error {
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	version := fields["redis_version"]
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 {
		if major < 5 {
			return fmt.Errorf("%w: %s, not 5 or newer", ErrVersion, version)
		}
		if s.set.files > 0 && (major < 7 || major == 7 && minor < 2) {
			return fmt.Errorf("%w: %s, and WithAppendOnly takes 7.2 or newer", ErrVersion, version)
		}
	}
	if s.set.files > 0 && fields["aof_enabled"] != "1" {
		return fmt.Errorf("%w: set appendonly yes", ErrAppendOnly)
	}
	policy := fields["maxmemory_policy"]
	if strings.HasPrefix(policy, "allkeys") && !s.set.evicting {
		return fmt.Errorf("%w: maxmemory-policy is %s", ErrEviction, policy)
	}
	return nil
}

// readMeta reads, and if it is the first writes, how the jobs are laid out.
func (s *Store) readMeta(ctx context.Context) error {
	key := s.set.prefix + ":meta"
	shards := s.set.shards
	if shards == 0 {
		shards = 1
		if s.clustered() {
			shards = 8
		}
	}
	var version, there int
	for wrote := false; ; wrote = true {
		read, err := s.client.HMGet(ctx, key, "version", "shards").Result()
		if err != nil {
			return err
		}
		if wrote || read[0] != nil {
			if _, err := fmt.Sscan(fmt.Sprintln(read...), &version, &there); err != nil {
				return fmt.Errorf("%w: %s holds %v", store.ErrCorrupt, key, read)
			}
			break
		}
		pipe := s.client.Pipeline() // version last, as it says that all is there
		pipe.HSetNX(ctx, key, "shards", shards)
		pipe.HSetNX(ctx, key, "version", layoutVersion)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	switch {
	case version > layoutVersion:
		return fmt.Errorf("%w: layout %d in %s", store.ErrNewer, version, key)
	case there < 1 || there > maxShards:
		return fmt.Errorf("%w: %d shards in %s", store.ErrCorrupt, there, key)
	case s.set.shards != 0 && s.set.shards != there:
		return fmt.Errorf("%w: %d, not %d", ErrShards, there, s.set.shards)
	}
	s.shards = there
	return nil
}

// register adds names to the set of queues.
func (s *Store) register(ctx context.Context, names []string) error {
	var missing []any
	for _, name := range names {
		if _, ok := s.known.Load(name); !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := s.repeat(ctx, func(ctx context.Context) error {
		return s.client.SAdd(ctx, s.set.prefix+":queues", missing...).Err()
	})
	if err == nil {
		for _, name := range missing {
			s.known.Store(name, true)
		}
	}
	return err
}
