package pebblestore

import (
	"math/big"

	"github.com/cockroachdb/pebble/v2"
)

// A scan goes through keys in order and passes over those that are damaged: it looks for the next
// key that can be read, and reports what it has left out. It is the way to read more than one key.
type scan struct {
	*pebble.Iterator
	s     *Store
	lower []byte
	upper []byte
	last  []byte // the key it is at

	damaged bool // something was left out
}

// newScan returns a scan of the keys from lower on and below upper.
func (s *Store) newScan(lower, upper []byte) (*scan, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, readError(err)
	}
	return &scan{Iterator: it, s: s, lower: lower, upper: upper}, nil
}

// scanKind returns a scan of all keys of a kind.
func (s *Store) scanKind(kind byte) (*scan, error) {
	return s.newScan([]byte{kind}, []byte{kind + 1})
}

func (c *scan) first() bool { return c.seek(c.lower) }

func (c *scan) seek(key []byte) bool {
	c.last = append(c.last[:0], key...)
	return c.at(c.SeekGE(key))
}

func (c *scan) next() bool { return c.at(c.Next()) }

func (c *scan) at(ok bool) bool {
	if !ok && pebble.IsCorruptionError(c.Error()) {
		err := c.Error()
		c.damaged = true
		ok = c.skip()
		c.s.set.log.Error("jobqueue: the store is damaged; what cannot be read is passed over",
			"error", err, "read_on", ok)
	}
	if ok {
		c.last = append(c.last[:0], c.Key()...)
	}
	return ok
}

// skip goes to the first key after last that can be read. It goes further and further until there
// is one, and then halves what is between. A key stands for a number here. Each key that cannot be
// read takes Pebble some milliseconds.
func (c *scan) skip() bool {
	size := max(len(c.last), 5+orderSize)
	number := func(key []byte) *big.Int {
		return new(big.Int).SetBytes(append(append([]byte{}, key...),
			make([]byte, size-min(len(key), size))...)[:size])
	}
	key := func(n *big.Int) []byte { return n.FillBytes(make([]byte, size)) }
	readable := func(n *big.Int) bool { return c.SeekGE(key(n)) || c.Error() == nil }

	bad, end := number(c.last), number(c.upper)
	good, one := new(big.Int), big.NewInt(1)
	for step := new(big.Int).Set(one); ; step.Lsh(step, 8) {
		if good.Add(bad, step); good.Cmp(end) >= 0 {
			good.Set(end)
			break
		}
		if readable(good) {
			break
		}
	}
	low := new(big.Int).Set(bad)
	for mid := new(big.Int); mid.Sub(good, low).Cmp(one) > 0; {
		mid.Add(low, good).Rsh(mid, 1)
		if readable(mid) {
			good.Set(mid)
		} else {
			low.Set(mid)
		}
	}
	return c.SeekGE(key(good))
}

// close returns the error that ended the scan, if one did.
func (c *scan) close() error { return readError(c.Close()) }

// copied returns a copy of the value.
func (c *scan) copied() ([]byte, error) {
	v, err := c.ValueAndErr()
	if err != nil {
		return nil, readError(err)
	}
	return append(make([]byte, 0, len(v)), v...), nil
}
