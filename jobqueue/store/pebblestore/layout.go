package pebblestore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// What is in the file. Integers are big-endian; n(6) is an integer of six bytes, u one of variable
// length; q is the number of a queue, q(4).
//
//	v                              -> "timingwheel jobqueue" and the version of this layout, n(1)
//	s                              -> reserved sequence n(8), token n(8), clocks' offset n(8)
//	q q                            -> flags n(1), limits, name: a queue and its settings
//	n q                            -> counts of jobs, written with every group that changes them
//	N name                         -> limits of a namespace
//	d q due(6) priority(1) seq(8)  -> record: a live job that is due when a duration is over
//	w q due(6) priority(1) seq(8)  -> record: a live job that is due at an instant
//	e q end(6) 0 seq(8)            -> record: a job that is Dead
//	f q end(6) 0 seq(8)            -> record: a job that is Done
//	x expiry(6) q end(6) 0 seq(8)  -> nothing: when a job that is Done goes
//	k q key                        -> moved n(1), place n(16), size u: the live job with a key
//	i seq(8)                       -> places n(8) without sequence, of a group's jobs from seq on
//	m seq(8)                       -> place n(16) of a job that is no longer where it was added
//	c claim(8)                     -> q, then place n(16) and revision u of each job: a claim with
//	                                  leases that have not ended
//	o id(8)                        -> seq(8): a job whose id the caller chose
//
// A job's record lies in the index by due time itself, so that a claim reads one range and an
// acknowledgement deletes two keys. A claim does not touch the records: one entry for all its jobs
// says that each has had one attempt more than its record counts. The revision says which writing
// of the record it means. The entry goes when no job of it is where it was claimed. Open counts
// what it finds into the records.
//
// The id of a job is its sequence number unless the caller chose another. Its entry in i is shared
// by the jobs of a group and goes when all of a range of sequence numbers are gone; see ranges.
//
// Every Set of a key that may exist follows a SingleDelete of it, so that a SingleDelete always
// meets one Set, as Pebble demands. Those of s, n and q are overwritten and never deleted so.
//
// # Two clocks
//
// A due time is in milliseconds of one of two clocks. That of d, e, f and x is the store's: it runs
// with the monotonic clock while the store is open and with the wall clock while it is closed, and
// never goes back. That of w is the wall clock. A step of the wall clock therefore changes when the
// jobs in w come due, and only when; those in d are not touched. The offset of the wall clock from
// the store's is used to merge the two, and to show times. It is stored when it changes by more
// than maxDrift.
const (
	keyVersion = 'v'
	keyMeta    = 's'
	keyQueue   = 'q'
	keyCounts  = 'n'
	keyLimits  = 'N'
	keyKey     = 'k'
	keyIDs     = 'i'
	keyMoved   = 'm'
	keyClaim   = 'c'
	keyExpiry  = 'x'
	keyChosen  = 'o'

	elapsed space = 'd'
	instant space = 'w'
	dead    space = 'e'
	done    space = 'f'

	magic   = "timingwheel jobqueue"
	version = 1
)

// A space is one of the four parts of the file that hold jobs.
type space byte

func (s space) live() bool { return s == elapsed || s == instant }

// A place is where in a queue the record of a job lies.
type place struct {
	space    space
	at       uint64 // milliseconds: due, or when it ended
	priority uint8  // 0 unless live
	seq      uint64
}

const (
	placeSize = 16 // encoded with its space
	orderSize = 15 // without: what it sorts by
	maxAt     = 1<<48 - 1
)

func append32(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }
func append64(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

func append48(b []byte, n uint64) []byte {
	return append(b, byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func get48(b []byte) uint64 {
	return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}

// prefix returns the beginning of the keys of a queue in a space.
func prefix(b []byte, s byte, q uint32) []byte { return append32(append(b, s), q) }

// key appends the key of a place.
func (p place) key(b []byte, q uint32) []byte {
	return p.order(prefix(b, byte(p.space), q))
}

// order appends what the place sorts by within its space.
func (p place) order(b []byte) []byte {
	return append64(append(append48(b, p.at), p.priority), p.seq)
}

// placeOf is the inverse of key.
func placeOf(key []byte) (place, error) {
	if len(key) != 5+orderSize {
		return place{}, fmt.Errorf("%w: a key of %d bytes", store.ErrCorrupt, len(key))
	}
	return place{space(key[0]), get48(key[5:]), key[11], binary.BigEndian.Uint64(key[12:])}, nil
}

func (p place) encode(b []byte) []byte { return p.order(append(b, byte(p.space))) }

func decodePlace(b []byte) place {
	return place{space(b[0]), get48(b[1:]), b[7], binary.BigEndian.Uint64(b[8:])}
}

func keyOf(b []byte, q uint32, key string) []byte { return append(prefix(b, keyKey, q), key...) }

func seqKey(b []byte, kind byte, seq uint64) []byte { return append64(append(b, kind), seq) }

// expiryKey returns the key by which a Done job is found when its time is over.
func expiryKey(b []byte, q uint32, p place, retain time.Duration) []byte {
	end := min(p.at+uint64((retain+time.Millisecond-1)/time.Millisecond), maxAt)
	return p.order(append32(append48(append(b, keyExpiry), end), q))
}

// A record is what is stored of a job, apart from its place.
type record struct {
	id       store.ID // 0 for the sequence number
	revision uint64   // counts the writings of this record
	moved    bool     // there is an entry in m
	attempts int
	most     int    // MaxAttempts
	added    uint64 // milliseconds of the store's clock
	retain   time.Duration
	was      place // of a Dead or Done job: where it was live
	key      string
	repeat   []byte
	err      string
	body     []byte
}

// The flags say which parts of a record are there.
const (
	hasMoved = 1 << iota
	hasID
	hasMost
	hasRetain
	hasWas
	hasKey
	hasRepeat
	hasError
)

func (r *record) encode(b []byte) []byte {
	at := len(b)
	b = append(b, 0)
	flag := func(flag byte, set bool) bool {
		if set {
			b[at] |= flag
		}
		return set
	}
	b = binary.AppendUvarint(b, r.revision)
	b = binary.AppendUvarint(b, uint64(r.attempts))
	b = append48(b, r.added)
	flag(hasMoved, r.moved)
	if flag(hasID, r.id != 0) {
		b = append64(b, uint64(r.id))
	}
	if flag(hasMost, r.most != 0) {
		b = binary.AppendUvarint(b, uint64(r.most))
	}
	if flag(hasRetain, r.retain > 0) {
		b = binary.AppendUvarint(b, uint64(r.retain))
	}
	if flag(hasWas, r.was.space != 0) {
		b = append48(append(b, byte(r.was.space), r.was.priority), r.was.at)
	}
	if flag(hasKey, r.key != "") {
		b = append(binary.AppendUvarint(b, uint64(len(r.key))), r.key...)
	}
	if flag(hasRepeat, len(r.repeat) > 0) {
		b = append(binary.AppendUvarint(b, uint64(len(r.repeat))), r.repeat...)
	}
	if flag(hasError, r.err != "") {
		b = append(binary.AppendUvarint(b, uint64(len(r.err))), r.err...)
	}
	return append(b, r.body...)
}

// decodeRecord reads a record. What it returns shares the memory of b.
func decodeRecord(b []byte, p place) (r record, err error) {
	d := decoder{b: b}
	flags := d.byte()
	r.revision = d.uvarint()
	r.attempts = int(d.uvarint())
	r.added = get48(d.bytes(6))
	r.moved = flags&hasMoved != 0
	if flags&hasID != 0 {
		r.id = store.ID(binary.BigEndian.Uint64(d.bytes(8)))
	}
	if flags&hasMost != 0 {
		r.most = int(d.uvarint())
	}
	if flags&hasRetain != 0 {
		r.retain = time.Duration(d.uvarint())
	}
	if flags&hasWas != 0 {
		r.was = place{space: space(d.byte()), priority: d.byte(), seq: p.seq}
		r.was.at = get48(d.bytes(6))
	}
	if flags&hasKey != 0 {
		r.key = string(d.bytes(d.uvarint()))
	}
	if flags&hasRepeat != 0 {
		r.repeat = d.bytes(d.uvarint())
	}
	if flags&hasError != 0 {
		r.err = string(d.bytes(d.uvarint()))
	}
	r.body = d.b
	if d.short {
		return record{}, fmt.Errorf("%w: the record of job %d is too short", store.ErrCorrupt,
			p.seq)
	}
	return r, nil
}

func (r *record) size() int { return len(r.body) + len(r.key) }

// A decoder reads values from the front of b. Reading beyond the end sets short and yields zeros.
type decoder struct {
	b     []byte
	short bool
}

var zeros [placeSize]byte

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.short, d.b = true, nil
		return zeros[:min(n, placeSize)]
	}
	part := d.b[:n:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) byte() byte { return d.bytes(1)[0] }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.short, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// A keyed is the value of k: the live job that has a key.
type keyed struct {
	chosen bool // its ID is not its sequence number
	moved  bool
	size   int
	place  place
}

func (k *keyed) encode(b []byte) []byte {
	var flags byte
	if k.moved {
		flags |= hasMoved
	}
	if k.chosen {
		flags |= hasID
	}
	return binary.AppendUvarint(k.place.encode(append(b, flags)), uint64(k.size))
}

func decodeKeyed(b []byte) (keyed, error) {
	d := decoder{b: b}
	flags := d.byte()
	k := keyed{
		moved:  flags&hasMoved != 0,
		chosen: flags&hasID != 0,
		place:  decodePlace(d.bytes(placeSize)),
		size:   int(d.uvarint()),
	}
	if d.short {
		return keyed{}, fmt.Errorf("%w: the entry of a key is too short", store.ErrCorrupt)
	}
	return k, nil
}

func encodeLimits(b []byte, l store.Limits) []byte {
	b = binary.AppendUvarint(b, uint64(l.Jobs))
	b = binary.AppendUvarint(b, uint64(l.Bytes))
	if l.DropOldest {
		return append(b, 1)
	}
	return append(b, 0)
}

func (d *decoder) limits() store.Limits {
	return store.Limits{Jobs: int(d.uvarint()), Bytes: int64(d.uvarint()),
		DropOldest: d.byte() == 1}
}
