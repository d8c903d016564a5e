package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file turns the operations of a group into calls of do.lua, and answers into outcomes.

// A call is what do.lua does at once: operations that concern one tag.
type call struct {
	tag    tag
	queues []string
	slots  []slot
	jobs   int // at most perCall
	bytes  int
	claims bool
	grows  bool // it needs memory, for jobs or settings
	lasts  bool // it is confirmed before it is answered, if the Store is to

	lane    int // 0 before it was sent first
	number  uint64
	lost    []lostCall
	full    bool // send the text of the script
	begun   bool // some of it was carried out
	unknown bool // it may have been carried out
	cmd     *redis.Cmd
	err     error

	unconfirmed error // why it is not confirmed although it was carried out
}

// A slot is an operation of a call, with what was made up for it, which stays the same if the call
// is sent again.
type slot struct {
	op    store.Op
	queue string
	id    store.ID // of an Add, or of the copy that a Finish leaves
	base  [6]byte  // the tokens of a Claim begin with it
	most  int      // of a Claim in this shard
	fresh int      // of most, those that are to be fresh
	free  int      // of most, those that workers are free for
	claim uint64   // the number of a Claim among those of its queue
	from  int64    // at which dead job a Requeue goes on
}

// index returns the number of a queue in the call, from 1 on.
func (c *call) index(queue string) int {
	i := slices.Index(c.queues, queue)
	if i < 0 {
		i = len(c.queues)
		c.queues = append(c.queues, queue)
	}
	return i + 1
}

// Do implements store.Store. All operations that concern one tag are one step. Those on several
// tags, which means several namespaces or shards, are not.
func (s *Store) Do(ctx context.Context, ops []store.Op) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.users.Done()
	if err := s.register(ctx, names(ops)); err != nil {
		return err
	}
	for begin := 0; begin < len(ops); {
		end := begin
		for end < len(ops) && !s.inParts(ops[end]) {
			end++
		}
		if err := s.doTogether(ctx, ops[begin:end]); err != nil {
			return unknownAfter(begin, err)
		}
		if end < len(ops) {
			if err := s.doInParts(ctx, ops[end]); err != nil {
				return unknownAfter(end, err)
			}
			end++
		}
		begin = end
	}
	return nil
}

// unknownAfter says that some operations were carried out before others failed.
func unknownAfter(n int, err error) error {
	if n > 0 {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return err
}

// names returns the queues of operations that may be the first of their queue.
func names(ops []store.Op) (list []string) {
	for _, op := range ops {
		switch op := op.(type) {
		case *store.Add:
			list = append(list, op.Job.Queue)
		case *store.Configure:
			list = append(list, op.Queue)
		}
	}
	return list
}

func (s *Store) doTogether(ctx context.Context, ops []store.Op) error {
	chains := map[tag][]*call{}
	for _, op := range ops {
		s.plan(chains, op)
	}
	if len(chains) == 0 {
		return nil
	}
	err := s.run(ctx, chains)
	for _, op := range ops {
		if claim, ok := op.(*store.Claim); ok {
			s.claimed(claim)
		}
	}
	return err
}

// inParts reports whether an operation takes as many calls as it finds jobs for.
func (s *Store) inParts(op store.Op) bool {
	switch op := op.(type) {
	case *store.Requeue:
		return op.Ref == (store.Ref{}) && (s.shards > 1 || op.Max > perCall)
	case *store.Purge:
		return s.shards > 1 || op.Max > perCall
	}
	return false
}

func (s *Store) doInParts(ctx context.Context, op store.Op) error {
	n, most := new(int), 0
	switch op := op.(type) {
	case *store.Requeue:
		n, most = &op.N, op.Max
	case *store.Purge:
		n, most = &op.N, op.Max
	}
	*n = 0
	op.Outcome().Err = nil
	for shard := 0; shard < s.shards && *n < most; {
		var part store.Op
		var got *int
		asked := min(most-*n, perCall)
		switch op := op.(type) {
		case *store.Requeue:
			p := &store.Requeue{Queue: op.Queue, Max: asked}
			part, got = p, &p.N
		case *store.Purge:
			p := &store.Purge{Queue: op.Queue, State: op.State, Max: asked}
			part, got = p, &p.N
		}
		chains := map[tag][]*call{}
		put(chains, shard, slot{op: part}, perCall, 0)
		if err := s.run(ctx, chains); err != nil {
			return unknownAfter(*n, err)
		}
		if *n += *got; *got < asked {
			shard++
		}
	}
	return nil
}

// queueOf returns the queue of an operation.
func queueOf(op store.Op) string {
	switch op := op.(type) {
	case *store.Add:
		return op.Job.Queue
	case *store.Claim:
		return op.Queue
	case *store.Finish:
		return op.Queue
	case *store.Extend:
		return op.Queue
	case *store.Cancel:
		return op.Queue
	case *store.Reschedule:
		return op.Queue
	case *store.Update:
		return op.Queue
	case *store.Requeue:
		return op.Queue
	case *store.Purge:
		return op.Queue
	case *store.Configure:
		return op.Queue
	}
	return ""
}

// put adds a slot to the last call of its tag, or to a new one if that is full.
func put(chains map[tag][]*call, shard int, sl slot, jobs, bytes int) {
	sl.queue = queueOf(sl.op)
	t := tagOf(sl.queue, shard)
	chain := chains[t]
	var c *call
	if n := len(chain); n > 0 {
		c = chain[n-1]
	}
	if c == nil || c.jobs+jobs > perCall || c.bytes+bytes > callBytes {
		c = &call{tag: t}
		chains[t] = append(chain, c)
	}
	switch op := sl.op.(type) {
	case *store.Claim:
		c.claims = true
	case *store.Extend:
	case *store.Finish:
		c.lasts = c.lasts || !op.Lazy
	case *store.Add, *store.Update, *store.Configure:
		c.grows, c.lasts = true, true
	default:
		c.lasts = true
	}
	c.slots = append(c.slots, sl)
	c.jobs += jobs
	c.bytes += bytes
}

// plan puts an operation into the calls that it takes, and sets its outcome to that of success.
func (s *Store) plan(chains map[tag][]*call, op store.Op) {
	op.Outcome().Err = nil
	byRef := func(ref store.Ref) { put(chains, s.shardOf(ref), slot{op: op}, 1, 0) }
	switch op := op.(type) {
	case *store.Add:
		op.ID, op.Kept = 0, false
		j := &op.Job
		if len(j.Key) > math.MaxUint16 {
			op.Err = store.ErrTooLarge
			return
		}
		sl := slot{op: op, id: j.ID}
		if j.ID == 0 {
			sl.id = s.newID(j.Key)
		}
		shard := s.shardOf(store.Ref{ID: sl.id})
		if j.Key != "" && shard != s.shardOf(store.Ref{Key: j.Key}) {
			op.Err = ErrChosenID
			return
		}
		put(chains, shard, sl, 1, len(j.Body)+len(j.Key)+len(j.Repeat))
	case *store.Claim:
		s.planClaim(chains, op)
	case *store.Finish:
		sl := slot{op: op}
		if op.Verdict == store.Again && op.Failed {
			const low = 1<<32 - 1
			sl.id = op.ID&^low | s.newID("")&low // the copy stays in the shard
		}
		put(chains, s.shardOf(store.Ref{ID: op.ID}), sl, 1, len(op.Repeat)+len(op.Error))
	case *store.Extend:
		byRef(store.Ref{ID: op.ID})
	case *store.Cancel:
		op.ID, op.Running = 0, false
		byRef(op.Ref)
	case *store.Reschedule:
		byRef(op.Ref)
	case *store.Update:
		put(chains, s.shardOf(op.Ref), slot{op: op}, 1, len(op.Body))
	case *store.Requeue:
		op.N = 0
		if op.Ref == (store.Ref{}) {
			put(chains, 0, slot{op: op}, perCall, 0)
			return
		}
		byRef(op.Ref)
	case *store.Purge:
		op.N = 0
		put(chains, 0, slot{op: op}, perCall, 0)
	case *store.Configure:
		for shard := range s.shards {
			put(chains, shard, slot{op: op}, 1, 0)
		}
	default:
		op.Outcome().Err = fmt.Errorf("redisstore: unknown operation %T", op)
	}
}

// encode returns the command of a call.
func (s *Store) encode(c *call) []any {
	var ops []any
	current := -1
	turn := func(queue string) {
		if i := c.index(queue); i != current {
			current = i
			ops = append(ops, "q", i)
		}
	}
	for i := 0; i < len(c.slots); i++ {
		sl := &c.slots[i]
		if configure, ok := sl.op.(*store.Configure); ok && strings.HasSuffix(sl.queue, "/") {
			if configure.Limits != nil {
				ops = append(ops, "S", encodeLimits(*configure.Limits, s.shards))
			} else {
				ops = append(ops, "S", "")
			}
			continue
		}
		turn(sl.queue)
		if isAck(sl.op) {
			var list []byte
			for ; i < len(c.slots) && c.slots[i].queue == sl.queue && isAck(c.slots[i].op); i++ {
				op := c.slots[i].op.(*store.Finish)
				list = binary.BigEndian.AppendUint64(list, uint64(op.ID))
				list = binary.BigEndian.AppendUint64(list, op.Token)
			}
			i--
			ops = append(ops, "k", list)
			continue
		}
		ops = s.appendOp(ops, sl)
	}
	s.take(c) // may add queues
	head := append(doScript.command(c.full, s.keys(c.tag, c.queues)),
		s.timeArg(), s.laneName(c.lane), c.number, len(c.queues))
	for _, q := range c.queues {
		head = append(head, q)
	}
	for _, l := range c.lost {
		head = append(head, "g", s.laneName(l.lane), l.number)
	}
	return append(head, ops...)
}

func isAck(op store.Op) bool {
	f, ok := op.(*store.Finish)
	return ok && f.Verdict == store.Ack
}

// appendOp appends an operation as do.lua reads it.
func (s *Store) appendOp(args []any, sl *slot) []any {
	var m []byte
	u64, u32 := binary.BigEndian.AppendUint64, binary.BigEndian.AppendUint32
	switch op := sl.op.(type) {
	case *store.Add:
		j := &op.Job
		m = appendWhen(u32(u64(m, uint64(sl.id)), hashOf(j.Key)), op.When)
		m = append(m, byte(op.On), bit(op.Retry), bit(j.ID != 0), j.Priority)
		m = u32(m, uint32(len(j.Body)+len(j.Key)))
		return append(args, "a", m, j.Key, appendTail(nil, j, j.ID != 0))
	case *store.Claim:
		m = u32(u32(u32(m, clamp32(sl.most)), clamp32(sl.fresh)), clamp32(sl.free))
		m = appendSpan(m, op.Lease)
		m = append(u32(m, clamp32(op.MaxAttempts)), sl.base[:]...)
		return append(args, "c", m)
	case *store.Finish:
		m = u64(u64(m, uint64(op.ID)), op.Token)
		m = appendWhen(append(m, byte(op.Verdict)), op.When)
		m = u64(append(m, bit(op.Failed)), uint64(sl.id))
		return append(args, "f", m, op.Error, op.Repeat)
	case *store.Extend:
		m = appendSpan(u64(u64(m, uint64(op.ID)), op.Token), op.Lease)
		return append(args, "e", m)
	case *store.Cancel:
		id, key := refArgs(op.Ref)
		return append(args, "d", id, key)
	case *store.Reschedule:
		id, key := refArgs(op.Ref)
		return append(args, "r", id, key, appendWhen(m, op.When))
	case *store.Update:
		id, key := refArgs(op.Ref)
		return append(args, "u", id, key, op.Body)
	case *store.Requeue:
		id, key := refArgs(op.Ref)
		return append(args, "w", id, key, op.Max-op.N, sl.from)
	case *store.Purge:
		return append(args, "p", int(op.State), op.Max)
	}
	op := sl.op.(*store.Configure)
	pause, limit := "", ""
	if op.Paused != nil {
		pause = string('0' + bit(*op.Paused))
	}
	if op.Limits != nil {
		limit = encodeLimits(*op.Limits, s.shards)
	}
	return append(args, "s", pause, limit)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// timeArg returns what scripts take for the time in a test, or nothing.
func (s *Store) timeArg() []byte {
	if s.set.clock == nil {
		return nil
	}
	now := s.set.clock()
	ms := append48(nil, now.UnixMilli())
	return binary.BigEndian.AppendUint32(ms, uint32(now.Nanosecond()%1e6))
}

// shrink takes what needs memory out of a call that was refused for lack of it, and reports whether
// something is left.
func (c *call) shrink(err error) bool {
	kept := c.slots[:0]
	for _, sl := range c.slots {
		switch sl.op.(type) {
		case *store.Add, *store.Update, *store.Configure:
			sl.op.Outcome().Err = named(err)
		default:
			kept = append(kept, sl)
		}
	}
	c.err = nil
	if len(kept) == len(c.slots) { // then its first write should not need memory
		for _, sl := range kept {
			sl.op.Outcome().Err = named(err)
		}
		return false
	}
	c.slots, c.grows = kept, false
	return len(kept) > 0
}

var refusals = map[string]error{
	"K": store.ErrKeyExists,
	"N": store.ErrNotFound,
	"L": store.ErrLeaseLost,
	"B": store.ErrLeased,
	"F": store.ErrFull,
}

// apply puts an answer into the outcomes. It reports whether there are operations left, for which
// the call has to declare more queues; then the call is what is left.
func (s *Store) apply(c *call, reply []any) (rest bool, err error) {
	defer func() {
		if r := recover(); r != nil { // an answer that do.lua does not give
			err = fmt.Errorf("%w: the answer of do.lua: %v", store.ErrCorrupt, r)
		}
	}()
	now := moment{reply[0].(int64), reply[1].(int64)}
	s.offset.Store(now.ms - time.Now().UnixMilli())
	done := int(reply[2].(int64))
	for _, sl := range c.slots[:done] {
		if add, ok := sl.op.(*store.Add); ok {
			add.ID = sl.id
		}
	}
	for _, a := range reply[5].([]any) {
		a := a.([]any)
		sl := &c.slots[a[0].(int64)-1]
		out := sl.op.Outcome()
		switch what := a[1].(string); what {
		case "k":
			add := sl.op.(*store.Add)
			add.ID, add.Kept = parseID(a[2].(string)), true
		case "d":
			cancel := sl.op.(*store.Cancel)
			cancel.ID, cancel.Running = parseID(a[2].(string)), a[3].(int64) == 1
		case "n":
			switch op := sl.op.(type) {
			case *store.Requeue:
				op.N += int(a[2].(int64))
				if len(a) > 3 {
					sl.from = a[3].(int64)
				}
			case *store.Purge:
				op.N = int(a[2].(int64))
			}
		case "c":
			s.applyClaim(c.tag.shard, sl, now, a)
		default:
			out.Err = refusals[what]
			if add, ok := sl.op.(*store.Add); ok {
				add.ID = 0
			}
		}
	}
	woken := reply[4].([]any)
	for i := 0; i < len(woken); i += 3 {
		due := woken[i+1].(int64) + s.behind(woken[i+2].(string)).Milliseconds()
		s.announced(c.queues[woken[i].(int64)-1], c.tag.shard, due, now.until(due))
	}
	c.slots = c.slots[done:]
	for _, name := range reply[3].([]any) {
		c.index(name.(string))
	}
	return len(c.slots) > 0, nil
}

func parseID(text string) store.ID {
	return store.ID(binary.BigEndian.Uint64([]byte(text)))
}

// applyClaim adds what a shard gave to a Claim.
func (s *Store) applyClaim(shard int, sl *slot, now moment, a []any) {
	op := sl.op.(*store.Claim)
	next, end := a[2].(int64), millis(a[3].(int64))
	op.Buried += int(a[4].(int64))
	if a[6].(int64) == 0 && next > now.ms { // another process waits for it
		next += later().Milliseconds()
	}
	for i := 7; i+1 < len(a); i += 2 {
		text := a[i].(string)
		j, ok := decodeJob(op.Queue, parseID(text[:8]), a[i+1].(string), text[8:])
		if !ok {
			panic(fmt.Sprintf("the record of job %s", j.ID))
		}
		j.State, j.LeaseEnd = store.Leased, end
		op.Jobs = append(op.Jobs, j)
	}
	if d := now.until(next); d >= 0 && (op.Next < 0 || d < op.Next) {
		op.Next = d
	}
	s.looked(op.Queue, shard, next, sl.claim)
}

func randomBase() (base [6]byte) {
	rand.Read(base[:])
	base[0] |= 0x80 // no token is 0
	return base
}
