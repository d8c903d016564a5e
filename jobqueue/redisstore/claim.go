package redisstore

import (
	"math"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file decides which shards a Claim asks.

// A queue is what is known of a queue with several shards that is claimed from. Guarded by Store.mu.
type queue struct {
	// heads has for each shard when it may have something to claim, in milliseconds of the server:
	// what the last claim said, or what was announced since. 0 is unknown, math.MaxInt64 never.
	heads []int64
	gen   uint64 // counts announcements, so that an older answer does not hide one
	turn  int    // where the next claim begins
}

func (s *Store) queueLocked(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{heads: make([]int64, s.shards)}
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
	first := q.turn % s.shards
	var due []int
	for i := range s.shards {
		shard := (q.turn + i) % s.shards
		if q.heads[shard] <= now {
			due = append(due, shard)
		}
		if q.heads[shard] < q.heads[first] {
			first = shard
		}
	}
	q.turn++
	gen := q.gen
	s.mu.Unlock()
	if len(due) == 0 {
		due = append(due, first)
	}
	due = due[:min(len(due), max(op.Max, 1))]
	for i, shard := range due {
		share := func(n int) int { return (n + i) / len(due) } // the remainder goes to the last
		most := min(share(op.Max), perCall)
		put(chains, shard, slot{
			op:    op,
			base:  randomBase(),
			most:  most,
			fresh: share(op.Fresh),
			free:  share(max(op.Max-op.Ahead, 0)),
			gen:   gen,
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
func (s *Store) looked(name string, shard int, next int64, gen uint64) {
	if next < 0 {
		next = math.MaxInt64
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueLocked(name)
	if q.gen != gen {
		next = min(next, q.heads[shard])
	}
	q.heads[shard] = next
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
		q.gen++
		q.heads[shard] = min(q.heads[shard], due)
	}
	watch := s.watch
	s.mu.Unlock()
	if watch != nil {
		watch(name, in)
	}
}
