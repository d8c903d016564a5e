package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has calls confirmed by replicas and append-only files.
//
// WAIT and WAITAOF are about what their own connection has written before. So they end the pipeline
// that has the calls, and on a Cluster each node gets a pipeline of its own. A call that is sent
// again is not carried out again, but do.lua writes a field all the same: else its new connection
// would have written nothing, and WAIT would confirm that at once.
//
// If too few confirm, the call is sent again until patience ends, as if its answer were lost.

// confirmTime is how long one WAIT may take. It is below the three seconds for which go-redis waits
// for an answer, and short enough that a call notices soon that the master is another one.
const confirmTime = time.Second

// WithReplicas has each call that changes jobs wait until n replicas have received it. A failover
// to one of them then loses nothing that was confirmed. If fewer than n confirm while the call is
// tried, it fails with ErrReplicas. Claims, extended leases and lazy outcomes of attempts do not
// wait: if a failover loses them, their jobs are delivered again.
func WithReplicas(n int) Option {
	if n < 1 {
		panic("redisstore: WithReplicas of a number below 1")
	}
	return func(s *settings) { s.replicas = n }
}

// WithAppendOnly has each call that changes jobs wait until the append-only files of the server and
// of so many replicas have it on disk. It takes Redis 7.2, or calls return ErrVersion, and a server
// with an append-only file, or they return ErrAppendOnly. What does not wait, and what happens if
// too few confirm, is as for WithReplicas.
func WithAppendOnly(replicas int) Option {
	if replicas < 0 {
		panic("redisstore: WithAppendOnly of a negative number")
	}
	return func(s *settings) { s.files = 1 + replicas }
}

// confirms reports whether any call is confirmed.
func (s *Store) confirms() bool { return s.set.replicas > 0 || s.set.files > 0 }

// execConfirmed sends calls and has those that last confirmed.
func (s *Store) execConfirmed(t *trial, wave []*call) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		s.pipeConfirmed(t, s.client.Pipeline(), wave)
		return
	}
	nodes := map[*redis.Client][]*call{}
	for _, c := range wave {
		node, err := cluster.MasterForKey(t.ctx, s.key(c.tag, "", "t"))
		if err != nil {
			c.cmd = redis.NewCmd(t.ctx)
			c.cmd.SetErr(err)
			continue
		}
		nodes[node] = append(nodes[node], c)
	}
	var group sync.WaitGroup
	for node, calls := range nodes {
		group.Go(func() { s.pipeConfirmed(t, node.Pipeline(), calls) })
	}
	group.Wait()
	// The client does not see what its nodes answer: that a slot has moved, say, or nothing. A slot
	// that is about to move (ASK) is waited for.
	if slices.ContainsFunc(wave, func(c *call) bool {
		m := judge(c.cmd.Err())
		return m == again || m == unknown
	}) {
		cluster.ReloadState(t.ctx)
	}
}

// pipeConfirmed sends calls to one server.
func (s *Store) pipeConfirmed(t *trial, pipe redis.Pipeliner, calls []*call) {
	for _, c := range calls {
		c.cmd = pipe.Do(t.ctx, s.encode(c)...)
	}
	confirmed := s.confirm(t, pipe)
	_, _ = pipe.Exec(t.ctx) // each command has its error
	err := confirmed()
	for _, c := range calls {
		if c.lasts {
			c.unconfirmed = err
		}
	}
}

// confirm ends a pipeline. What it returns tells, once the pipeline was executed, whether enough
// servers have confirmed it.
func (s *Store) confirm(t *trial, pipe redis.Pipeliner) func() error {
	limit := min(confirmTime, time.Until(t.end))
	if d := readTimeout(s.client); d > 0 {
		limit = min(limit, d/2)
	}
	ms := max(limit.Milliseconds(), 1) // 0 would be for ever
	var wait, waitAOF *redis.Cmd
	if s.set.replicas > 0 {
		wait = pipe.Do(t.ctx, "wait", s.set.replicas, ms)
	}
	if s.set.files > 0 {
		waitAOF = pipe.Do(t.ctx, "waitaof", 1, s.set.files-1, ms)
	}
	return func() error {
		var errs []error
		if wait != nil {
			n, err := wait.Int()
			if err == nil && n < s.set.replicas {
				err = fmt.Errorf("%w: %d of %d replicas", ErrReplicas, n, s.set.replicas)
			}
			errs = append(errs, err)
		}
		if waitAOF != nil {
			n, err := waitAOF.Int64Slice()
			if err == nil && (len(n) != 2 || n[0] < 1 || n[1] < int64(s.set.files-1)) {
				err = fmt.Errorf("%w: append-only files of server and replicas: %d, not 1 and %d",
					ErrReplicas, n, s.set.files-1)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}

// readTimeout returns for how long a client waits for an answer, or 0 if it does not say.
func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}
