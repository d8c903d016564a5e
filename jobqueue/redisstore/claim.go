package redisstore

import (
	"math"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file decides which shards a Claim asks.

// A queue is what is known of the shards of a queue that is claimed from. Guarded by Store.mu.
type queue struct {
	// heads has when a shard may have something to claim, in milliseconds of the server: what the
	// last claim said, or what was announced since. 0 is unknown, math.MaxInt64 never.
	heads []int64
	// lows has what was announced since the last claim of a shard was planned. Its answer may be
	// older than that.
	lows    []int64
	claims  uint64   // the number of the last one
	applied []uint64 // the number of the last one that was answered
}

func (s *Store) queueLocked(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{
			heads:   make([]int64, s.shards),
			lows:    make([]int64, s.shards),
			applied: make([]uint64, s.shards),
		}
		s.queues[name] = q
		s.followLocked(name)
	}
	return q
}

// planClaim asks the shards that have something to claim, each for its share. If none has, it asks
// the one that will be first.
func (s *Store) planClaim(chains map[tag][]*call, op *store.Claim) {
	op.Jobs, op.Buried, op.Next = op.Jobs[:0], 0, -1
	s.mu.Lock()
	q := s.queueLocked(op.Queue)
	now := s.serverTime()
	q.claims++
	number := q.claims
	turn := int(number % uint64(s.shards)) // each shard is the first in its turn
	first := turn
	var due []int
	for i := range s.shards {
		shard := (turn + i) % s.shards
		if q.heads[shard] <= now {
			due = append(due, shard)
		}
		if q.heads[shard] < q.heads[first] {
			first = shard
		}
	}
	if len(due) == 0 {
		due = append(due, first)
	}
	due = due[:min(len(due), max(op.Max, 1))]
	for _, shard := range due {
		q.lows[shard] = math.MaxInt64
	}
	s.mu.Unlock()
	for i, shard := range due {
		share := func(n int) int { return (n + i) / len(due) } // the remainder goes to the last
		most := min(share(op.Max), perCall)
		put(chains, shard, slot{
			op:    op,
			base:  randomBase(),
			most:  most,
			fresh: share(op.Fresh),
			free:  share(max(op.Max-op.Ahead, 0)),
			claim: number,
		}, max(most, 1), 0)
	}
}

// serverTime returns about what the server's clock shows.
func (s *Store) serverTime() int64 {
	if s.set.clock != nil {
		return s.set.clock().UnixMilli()
	}
	return time.Now().UnixMilli() + s.offset.Load()
}

// looked notes what a claim said of a shard.
func (s *Store) looked(name string, shard int, next int64, claim uint64) {
	if next < 0 {
		next = math.MaxInt64
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueLocked(name)
	if claim < q.applied[shard] {
		q.heads[shard] = min(q.heads[shard], next)
		return
	}
	q.applied[shard] = claim
	q.heads[shard] = min(next, q.lows[shard])
}

// claimed completes a Claim with the shards that were not asked, or have more.
func (s *Store) claimed(op *store.Claim) {
	store.SortJobs(op.Jobs)
	if s.shards == 1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.serverTime()
	for _, head := range s.queueLocked(op.Queue).heads {
		if head == math.MaxInt64 {
			continue
		}
		if d := (moment{ms: now}).until(head); op.Next < 0 || d < op.Next {
			op.Next = d
		}
	}
}

// announced notes that a shard has something to claim earlier than before, and tells the watcher.
// A due time of 0 says that it is not known when.
func (s *Store) announced(name string, shard int, due int64, in time.Duration) {
	s.mu.Lock()
	if q := s.queues[name]; q != nil {
		q.heads[shard] = min(q.heads[shard], due)
		q.lows[shard] = min(q.lows[shard], due)
	}
	watch := s.watch
	s.mu.Unlock()
	if watch != nil {
		watch(name, in)
	}
}
