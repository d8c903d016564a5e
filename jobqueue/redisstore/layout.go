package redisstore

import (
	"crypto/sha1"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has the names of keys and the encoding of what is in them.
//
// With the prefix "jobqueue", the store has in all
//
//	jobqueue:meta     hash: version of the layout, number of shards
//	jobqueue:queues   set: the names of queues, and of namespaces with limits
//
// The jobs of a queue are spread over shards by a hash of the key, which is also the high half of
// the ID; without a key that is random. The shard i of the queues of a namespace, or of a
// queue without one, has a hash tag, so that one script reaches all of it on a Cluster. For the
// queue "orders/expire" the tag is {jobqueue:orders/:i}, and the keys are
//
//	{...}t            hash: what the queues of the tag share
//	{...}expire:z     sorted set: due time, member; the pending jobs
//	{...}expire:l     sorted set: end of the lease, member
//	{...}expire:b     hash: field, record; not written again by claims
//	{...}expire:s     hash: ID, tries; only after a first claim
//	{...}expire:k     hash: key, member; of live jobs whose field is not short
//	{...}expire:d     sorted set: when it finished, member; the dead jobs
//	{...}expire:f     sorted set: when it finished, member; the jobs that are done and retained
//	{...}expire:x     sorted set: when to forget it, "d" and the member of a job that is done, or
//	                  "r" and an ID that a caller chose
//	{...}expire:w     a channel on which an earlier due time is announced
//
// Times are in milliseconds. A member has 1 byte of priority, 5 of sequence and 8 of ID, so that
// members of equal due time are in the order of claims. Numbers are big endian.
//
// The field of a record is the ID. That of a live job with a key, if no other one has the same hash
// and the caller did not choose the ID, is short: the hash of the key alone. So the key finds the
// record, which takes 80 bytes a job less than an index. The lowest bit of the sequence says that a
// field is short.
//
//	record   priority and sequence 6, low half of the ID 4, added 6, flags 1, length of the key 2,
//	         then what the flags say: max attempts 4, retain 6, length of the repeat 4 and repeat;
//	         then key, body
//	tries    token 8, due 6, attempts 4, priority and sequence 6, flags 1, size of key and body 4,
//	         length of the key 2; then key, last error
//
// Every key but the channel has a member or field that stays, which is empty or "v". The fields
// of t are "v"; "q", the last sequence; "J" and "B", live jobs and their bytes; "L", the limits of
// the namespace; for each queue "v", "b", "p", "l" and "a" with its name: that its keys exist,
// bytes, paused, limits, and which process is armed; and "c" with the name of a lane. do.lua
// explains the last two.

const (
	layoutVersion = 1
	maxShards     = 4096

	// perCall bounds the jobs of a script call, which holds up all other clients, and callBytes
	// their bodies.
	perCall   = 1000
	callBytes = 8 << 20
)

// The flags of a record.
const (
	hasMax = 1 << iota
	hasRetain
	hasRepeat
	wasChosen
)

// queueKeys are the kinds of keys of a queue, in the order in which scripts get them.
var queueKeys = [...]string{"z", "l", "b", "s", "k", "d", "f", "x"}

// A tag names the keys that are together on one server.
type tag struct {
	space string // a namespace with its slash, or a queue
	shard int
}

// tagOf returns the tag of a shard of a queue, or of a namespace's name with the slash.
func tagOf(queue string, shard int) tag {
	space, _, ok := strings.Cut(queue, "/")
	if ok {
		space += "/"
	}
	return tag{space, shard}
}

// key returns the key of a kind of a queue of the tag, or with no queue that of the tag itself.
func (s *Store) key(t tag, queue, kind string) string {
	base := "{" + s.set.prefix + ":" + t.space + ":" + strconv.Itoa(t.shard) + "}"
	if queue == "" {
		return base + kind
	}
	return base + strings.TrimPrefix(queue, t.space) + ":" + kind
}

// keys returns the keys of a call.
func (s *Store) keys(t tag, queues []string) []string {
	list := make([]string, 0, 1+len(queues)*len(queueKeys))
	list = append(list, s.key(t, "", "t"))
	for _, q := range queues {
		for _, kind := range queueKeys {
			list = append(list, s.key(t, q, kind))
		}
	}
	return list
}

// hashOf returns the hash of a key. Scripts compute the same.
func hashOf(key string) uint32 {
	sum := sha1.Sum([]byte(key))
	return binary.BigEndian.Uint32(sum[:])
}

// newID returns an ID for a job: the hash of its key and a counter, which begins at random; without
// a key both are random. Two jobs without keys get the same one about as often as memory errs.
func (s *Store) newID(key string) store.ID {
	for {
		id := rand.Uint64()
		if key != "" {
			id = uint64(hashOf(key))<<32 | uint64(s.low.Add(1))
		}
		if id != 0 {
			return store.ID(id)
		}
	}
}

// shardOf returns the shard of a job.
func (s *Store) shardOf(ref store.Ref) int {
	h := uint32(ref.ID >> 32)
	if ref.ID == 0 {
		h = hashOf(ref.Key)
	}
	return int(h % uint32(s.shards))
}

func idBytes(id store.ID) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(id)))
}

// refArgs returns what names a job to a script: its ID, or the hash of its key and the key.
func refArgs(ref store.Ref) (id, key string) {
	if ref.ID != 0 {
		return idBytes(ref.ID), ""
	}
	if ref.Key == "" {
		return "", ""
	}
	return string(binary.BigEndian.AppendUint32(nil, hashOf(ref.Key))), ref.Key
}

// append48 appends 6 bytes.
func append48(b []byte, v int64) []byte {
	v = min(max(v, 0), 1<<48-1)
	b = binary.BigEndian.AppendUint16(b, uint16(v>>32))
	return binary.BigEndian.AppendUint32(b, uint32(v))
}

// appendSpan appends a duration as milliseconds and nanoseconds.
func appendSpan(b []byte, d time.Duration) []byte {
	d = max(d, 0)
	b = append48(b, int64(d/time.Millisecond))
	return binary.BigEndian.AppendUint32(b, uint32(d%time.Millisecond))
}

// appendWhen appends a When: 0 for now, 1 and a duration, or 2 and an instant.
func appendWhen(b []byte, w store.When) []byte {
	switch {
	case !w.At.IsZero():
		b = append48(append(b, 2), ceilMilli(w.At))
		return append(b, 0, 0, 0, 0)
	case w.In > 0:
		return appendSpan(append(b, 1), w.In)
	}
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%1e6 != 0 {
		ms++
	}
	return ms
}

// appendTail appends a record from the flags on.
func appendTail(b []byte, j *store.Job, chosen bool) []byte {
	var flags byte
	if j.MaxAttempts > 0 {
		flags |= hasMax
	}
	if j.Retain > 0 {
		flags |= hasRetain
	}
	if len(j.Repeat) > 0 {
		flags |= hasRepeat
	}
	if chosen {
		flags |= wasChosen
	}
	b = binary.BigEndian.AppendUint16(append(b, flags), uint16(len(j.Key)))
	if flags&hasMax != 0 {
		b = binary.BigEndian.AppendUint32(b, clamp32(j.MaxAttempts))
	}
	if flags&hasRetain != 0 {
		b = append48(b, int64((j.Retain-1)/time.Millisecond)+1)
	}
	if flags&hasRepeat != 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(j.Repeat)))
		b = append(b, j.Repeat...)
	}
	return append(append(b, j.Key...), j.Body...)
}

func clamp32(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }

// A decoder takes numbers and texts off the front of a record. It is short if there was too little.
type decoder struct {
	b     string
	short bool
}

func (d *decoder) text(n int) string {
	if n > len(d.b) {
		d.short, d.b = true, ""
		return strings.Repeat("\x00", min(n, 8))
	}
	text := d.b[:n]
	d.b = d.b[n:]
	return text
}

// uint takes a number of up to 8 bytes.
func (d *decoder) uint(n int) (v uint64) {
	for _, c := range []byte(d.text(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (d *decoder) time() time.Time { return millis(int64(d.uint(6))) }

func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// decodeJob reads a record and, if there are any, tries. The state is the caller's to say.
func decodeJob(queue string, id store.ID, record, tries string) (store.Job, bool) {
	d := decoder{b: record}
	j := store.Job{ID: id, Queue: queue}
	j.Priority = uint8(d.uint(1))
	d.text(5 + 4)
	j.Added = d.time()
	flags, klen := d.uint(1), int(d.uint(2))
	if flags&hasMax != 0 {
		j.MaxAttempts = int(d.uint(4))
	}
	if flags&hasRetain != 0 {
		const most = math.MaxInt64 / uint64(time.Millisecond)
		j.Retain = time.Duration(min(d.uint(6), most)) * time.Millisecond
	}
	if flags&hasRepeat != 0 {
		j.Repeat = []byte(d.text(int(d.uint(4))))
	}
	j.Key = d.text(klen)
	j.Body = []byte(d.b)
	if tries != "" && !d.short {
		d.b = tries
		j.Token = d.uint(8)
		j.Due = d.time()
		j.Attempts = int(d.uint(4))
		d.text(6 + 1 + 4)
		d.text(int(d.uint(2)))
		j.LastError = d.b
	}
	return j, !d.short
}

// encodeLimits has the number of shards, each of which holds its share.
func encodeLimits(l store.Limits, shards int) string {
	b := append48(append48(nil, int64(l.Jobs)), l.Bytes)
	if l.DropOldest {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return string(binary.BigEndian.AppendUint16(b, uint16(shards)))
}

func decodeLimits(text string) store.Limits {
	if text == "" {
		return store.Limits{}
	}
	d := decoder{b: text}
	return store.Limits{Jobs: int(d.uint(6)), Bytes: int64(d.uint(6)), DropOldest: d.uint(1) == 1}
}

// A moment is the time of the server.
type moment struct{ ms, ns int64 }

// until returns how long it is until a time in milliseconds, or -1 for never.
func (m moment) until(ms int64) time.Duration {
	if ms < 0 {
		return -1
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms-m.ms >= most {
		return math.MaxInt64
	}
	return max(time.Duration(ms-m.ms)*time.Millisecond-time.Duration(m.ns), 0)
}
