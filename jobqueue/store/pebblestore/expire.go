package pebblestore

import (
	"encoding/binary"
	"time"
)

// Jobs that are Done go when their time is over: with the next group that comes, so that an idle
// store stays idle. Until then those who read pass over them.

// expireMost is how many go with a group that was to do something else.
const expireMost = 1000

// endOf returns when a Done job goes.
func endOf(p place, retain time.Duration) uint64 {
	return min(p.at+uint64((max(retain, 0)+time.Millisecond-1)/time.Millisecond), maxAt)
}

// expired says whether a job is one that is Done and should have gone.
func (e *entry) expired(now moment) bool {
	return e.place.space == done && endOf(e.place, e.record.retain) <= now.ms()
}

// expire removes Done jobs whose time is over, and returns whether none is left. mu is locked, and
// a group is being built.
func (s *Store) expire(most int) (all bool) {
	now := s.group.now.ms()
	if now < s.expiry {
		return true
	}
	c, err := s.scanKind(keyExpiry)
	if err != nil {
		return true
	}
	defer c.close()
	s.expiry = maxAt
	for ok := c.first(); ok; ok = c.next() {
		k := c.last
		if len(k) != 11+orderSize {
			continue
		}
		if s.expiry = get48(k[1:]); s.expiry > now {
			return true
		}
		if most--; most < 0 {
			return false
		}
		s.expiry = maxAt
		e := &entry{
			queue: s.numbered[binary.BigEndian.Uint32(k[7:])],
			place: decodePlace(append([]byte{byte(done)}, k[11:]...)),
		}
		if e.queue == nil {
			continue
		}
		// A Done job was moved there, and when it goes is all that its retention is needed for.
		e.record.moved = true
		e.record.retain = time.Duration(get48(k[1:])-e.place.at) * time.Millisecond
		s.remove(e)
	}
	return true
}

// expireAll removes all Done jobs whose time is over.
func (s *Store) expireAll() error {
	for {
		s.mu.Lock()
		if err := s.useLocked(); err != nil {
			s.mu.Unlock()
			return err
		}
		s.begin()
		all := s.expire(10 * expireMost)
		err := s.commit()
		s.users.Done()
		if all || err != nil {
			return err
		}
	}
}
