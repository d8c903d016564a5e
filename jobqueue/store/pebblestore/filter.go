package pebblestore

// A filter tells whether a key may be live, so that most Adds need not read the index. It is a
// cuckoo filter: 16-bit fingerprints, four to a bucket, two to five bytes a key. When it is full
// another one of twice the size is put in front. Guarded by Store.mu.
//
// A table finds buckets by the low bits of a hash. What two hashes share in a larger table they
// share in the smaller ones, so removing a fingerprint from the largest table that has it never
// hides another key.
type filter struct {
	exact  bool     // all live keys are in it; until then every key may be live
	tables []*table // the largest first
}

type table struct {
	buckets []uint64
	n       int
	random  uint64
	stash   []homeless // fingerprints that found no place, which is rare
}

type homeless struct {
	fp     uint16
	bucket uint64
}

// newFilter returns a filter that has room for so many keys.
func newFilter(n int) filter {
	size := 1024
	for size*4*fullAt/100 < n {
		size *= 2
	}
	return filter{tables: []*table{{buckets: make([]uint64, size)}}}
}

// fullAt is how full a table may be, in percent. Up to here kicks find a place at once, nearly
// always.
const fullAt = 85

func (f *filter) has(h uint64) bool {
	if !f.exact {
		return true
	}
	for _, t := range f.tables {
		if t.has(h) {
			return true
		}
	}
	return false
}

func (f *filter) add(h uint64) {
	t := f.tables[0]
	if t.n >= len(t.buckets)*4*fullAt/100 {
		t = &table{buckets: make([]uint64, 2*len(t.buckets))}
		f.tables = append([]*table{t}, f.tables...)
	}
	t.add(h)
}

func (f *filter) remove(h uint64) {
	for _, t := range f.tables {
		if t.remove(h) {
			return
		}
	}
}

func fingerprint(h uint64) uint16 { return uint16(max(h>>48, 1)) }

// both returns the two buckets of a hash.
func (t *table) both(h uint64) [2]uint64 {
	i := h & uint64(len(t.buckets)-1)
	return [2]uint64{i, t.other(i, fingerprint(h))}
}

// other returns the other bucket of a fingerprint that may be in one.
func (t *table) other(bucket uint64, fp uint16) uint64 {
	return (bucket ^ uint64(fp)*0xc6a4a7935bd1e995>>20) & uint64(len(t.buckets)-1)
}

func (t *table) has(h uint64) bool {
	all := uint64(fingerprint(h)) * 0x0001000100010001
	for _, i := range t.both(h) {
		x := t.buckets[i] ^ all
		if (x-0x0001000100010001)&^x&0x8000800080008000 != 0 {
			return true
		}
	}
	return t.stashed(h) >= 0
}

func (t *table) add(h uint64) {
	t.n++
	fp, both := fingerprint(h), t.both(h)
	if t.put(both[0], fp) || t.put(both[1], fp) {
		return
	}
	i := both[0]
	for range 500 {
		t.random = t.random*6364136223846793005 + 1442695040888963407
		shift := t.random >> 62 * 16
		out := uint16(t.buckets[i] >> shift)
		t.buckets[i] = t.buckets[i]&^(0xffff<<shift) | uint64(fp)<<shift
		fp, i = out, t.other(i, out)
		if t.put(i, fp) {
			return
		}
	}
	t.stash = append(t.stash, homeless{fp, i})
}

// put puts a fingerprint into a free slot of a bucket.
func (t *table) put(i uint64, fp uint16) bool {
	for shift := 0; shift < 64; shift += 16 {
		if t.buckets[i]>>shift&0xffff == 0 {
			t.buckets[i] |= uint64(fp) << shift
			return true
		}
	}
	return false
}

func (t *table) remove(h uint64) bool {
	fp := uint64(fingerprint(h))
	for _, i := range t.both(h) {
		for shift := 0; shift < 64; shift += 16 {
			if t.buckets[i]>>shift&0xffff == fp {
				t.buckets[i] &^= 0xffff << shift
				t.n--
				return true
			}
		}
	}
	if at := t.stashed(h); at >= 0 {
		t.stash = append(t.stash[:at], t.stash[at+1:]...)
		t.n--
		return true
	}
	return false
}

// stashed returns where in the stash a hash is, or -1.
func (t *table) stashed(h uint64) int {
	for at, e := range t.stash {
		if both := t.both(h); e.fp == fingerprint(h) &&
			(e.bucket == both[0] || e.bucket == both[1]) {
			return at
		}
	}
	return -1
}
