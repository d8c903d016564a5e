package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file sends calls of scripts, and decides what an error means.
//
// A call that failed was either not carried out, or may have been: the answer was lost. Both are
// sent again. A call has a number, and the lane that it is in remembers the number of its last
// call, so a call that was carried out is not carried out again but answers the same. This holds
// as well for what the client repeats on its own.

//go:embed common.lua
var commonLua string

//go:embed do.lua
var doLua string

//go:embed read.lua
var readLua string

// A script is run by its hash. A server that does not have it, because it was restarted, promoted
// or told to forget it, gets its text. Pipelines of the client do not see to this themselves.
type script struct{ text, hash string }

var (
	doScript   = newScript(commonLua + doLua)
	readScript = newScript(commonLua + readLua)
)

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// command returns the beginning of the arguments that run the script.
func (sc *script) command(full bool, keys []string) []any {
	args := []any{"evalsha", sc.hash, len(keys)}
	if full {
		args[0], args[1] = "eval", sc.text
	}
	for _, k := range keys {
		args = append(args, k)
	}
	return args
}

// A lostCall was given up without an answer. Jobs that it claimed are given back before the tag's
// next call, and it is refused if it still arrives.
type lostCall struct {
	lane   int
	number uint64
	queues []string
}

// What an error says about a call.
type meaning uint8

const (
	carriedOut meaning = iota
	again              // not carried out, and may be if sent again
	unknown            // carried out or not
	noScript           // not carried out, as the server lacks the script
	noMemory           // not carried out
	final              // not carried out, and will not be
	broken             // carried out in part, as the script failed
	ours               // an error of this package
)

var meanings = []struct {
	prefix string
	meaning
}{
	{"NOSCRIPT", noScript},
	{"OOM", noMemory},
	{"LOADING", again},
	{"READONLY", again},
	{"TRYAGAIN", again},
	{"CLUSTERDOWN", again},
	{"MASTERDOWN", again},
	{"NOREPLICAS", again},
	{"MOVED", again},
	{"ASK", again},
	{"BUSY", again},
	{"MISCONF", again},
	{"UNBLOCKED", again},
	{"NOAUTH", final},
	{"WRONGPASS", final},
	{"NOPERM", final},
	{"ERR max number of clients", again},
	{"ERR invalid password", final},
}

var ourErrors = []error{store.ErrCorrupt, store.ErrNewer, ErrEviction, ErrVersion, ErrAppendOnly,
	ErrShards}

// judge says what an error means.
func judge(err error) meaning {
	var server redis.Error
	var dial *net.OpError
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return carriedOut
	case errors.Is(err, redis.ErrClosed):
		return final
	case slices.ContainsFunc(ourErrors, func(e error) bool { return errors.Is(err, e) }):
		return ours
	case errors.Is(err, redis.ErrPoolTimeout):
		return again
	case errors.As(err, &dial) && dial.Op == "dial":
		return again
	case errors.As(err, &server):
		text := server.Error()
		if strings.Contains(text, "Script killed by user") { // only if it had written nothing
			return again
		}
		if strings.HasPrefix(text, "ERR Error running") { // before Redis 7
			if _, reason, ok := strings.Cut(text, ": -"); ok {
				text = reason
			}
		}
		for _, m := range meanings {
			if strings.HasPrefix(text, m.prefix) {
				return m.meaning
			}
		}
		return broken
	case strings.HasPrefix(err.Error(), "redis: all sentinels"):
		return again
	}
	return unknown
}

// named adds the name of an error that the user can do something about.
func named(err error) error {
	if errors.Is(err, ErrReplicas) {
		return err
	}
	switch judge(err) {
	case noMemory:
		return fmt.Errorf("%w: %w", ErrMemory, err)
	case final:
		if errors.Is(err, redis.ErrClosed) {
			return fmt.Errorf("%w: %w", store.ErrClosed, err)
		}
		return fmt.Errorf("%w: %w", ErrAuth, err)
	case again, unknown, noScript:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// A trial counts the time of one call.
type trial struct {
	ctx   context.Context
	end   time.Time
	pause time.Duration
}

func (s *Store) newTrial(ctx context.Context) *trial {
	return &trial{ctx: ctx, end: time.Now().Add(s.set.patience), pause: 5 * time.Millisecond}
}

// next waits before the call is sent again. It returns false if there is no more time.
func (t *trial) next() bool {
	if time.Until(t.end) < t.pause {
		return false
	}
	timer := time.NewTimer(t.pause)
	defer timer.Stop()
	t.pause = min(2*t.pause, time.Second)
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// repeat calls f, which may be called many times, until it succeeds or there is no more time.
func (s *Store) repeat(ctx context.Context, f func(context.Context) error) error {
	t := s.newTrial(ctx)
	for {
		err := f(ctx)
		switch judge(err) {
		case carriedOut:
			s.well(s.placeOf(tag{}, aboutReads))
			return nil
		case again, unknown, noScript:
			s.met(ctx, s.placeOf(tag{}, aboutReads), named(err), false)
			if t.next() {
				continue
			}
		}
		s.met(ctx, s.placeOf(tag{}, aboutReads), named(err), true)
		return named(err)
	}
}

// run sends calls, those of a tag one after the other, those of different tags together.
func (s *Store) run(ctx context.Context, chains map[tag][]*call) error {
	t := s.newTrial(ctx)
	var errs []error
	executed := false
	for {
		var wave []*call
		for tg, chain := range chains {
			if len(chain) == 0 {
				delete(chains, tg)
				continue
			}
			wave = append(wave, chain[0])
		}
		if len(wave) == 0 {
			break
		}
		s.exec(t, wave)
		wait := false
		for _, c := range wave {
			m := s.settle(ctx, c)
			s.note(ctx, c, m)
			switch m {
			case carriedOut:
				executed = true
				chains[c.tag] = chains[c.tag][1:]
				s.release(c)
			case noScript, noMemory:
				executed = executed || c.begun
			case again, unknown:
				c.unknown = c.unknown || m == unknown
				wait = true
			default:
				c.unknown = c.unknown || m == broken
				errs = append(errs, s.giveUp(ctx, c, chains))
				executed = executed || c.unknown
			}
		}
		if wait && !t.next() {
			for tg, chain := range chains {
				if len(chain) > 0 {
					errs = append(errs, s.giveUp(ctx, chain[0], chains))
					executed = executed || chain[0].unknown
				}
				delete(chains, tg)
			}
		}
	}
	err := errors.Join(errs...)
	if err != nil && executed {
		err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// exec sends calls in one pipeline. Each gets a lane and a number when it is sent first.
func (s *Store) exec(t *trial, wave []*call) {
	if s.confirms() && slices.ContainsFunc(wave, func(c *call) bool { return c.lasts }) {
		s.execConfirmed(t, wave)
		return
	}
	if len(wave) == 1 {
		c := wave[0]
		c.cmd = s.client.Do(t.ctx, s.encode(c)...)
		return
	}
	pipe := s.client.Pipeline()
	for _, c := range wave {
		c.cmd = pipe.Do(t.ctx, s.encode(c)...)
	}
	_, _ = pipe.Exec(t.ctx) // each command has its error
}

// settle reads the answer to a call.
func (s *Store) settle(ctx context.Context, c *call) meaning {
	reply, err := c.cmd.Slice()
	c.err = err
	m := judge(err)
	switch m {
	case noScript:
		c.full = true
		return m
	case noMemory:
		s.met(ctx, s.placeOf(c.tag, aboutMemory), named(err), true)
		if c.shrink(err) {
			return m
		}
		return carriedOut
	case carriedOut:
	default:
		return m
	}
	c.full = false
	if c.unconfirmed != nil {
		c.err, c.unknown = c.unconfirmed, true
		if m := judge(c.err); m == final || m == broken {
			return m
		}
		return unknown
	}
	rest, err := s.apply(c, reply)
	if err != nil {
		c.err = err
		return broken
	}
	if rest {
		c.number, c.unknown, c.begun = 0, false, true
		return noScript // to be sent at once
	}
	return carriedOut
}

// giveUp ends a call and those behind it.
func (s *Store) giveUp(ctx context.Context, c *call, chains map[tag][]*call) error {
	err := named(c.err)
	s.met(ctx, s.placeOf(c.tag, ""), err, true)
	for _, later := range chains[c.tag] {
		for i := range later.slots {
			out := later.slots[i].op.Outcome()
			if out.Err = err; later == c && c.unknown {
				out.Err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
			}
		}
	}
	chains[c.tag] = nil
	if !c.unknown || !c.claims {
		s.release(c)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[c.tag] = append(s.lost[c.tag], lostCall{c.lane, c.number, c.queues})
	return err
}

// take gives a call a lane and a number, and what was lost before it on its tag.
func (s *Store) take(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.lane == 0 {
		if n := len(s.lanes); n > 0 {
			c.lane = s.lanes[n-1]
			s.lanes = s.lanes[:n-1]
		} else {
			s.lane++
			c.lane = s.lane
		}
	}
	if c.number == 0 {
		c.number = s.numbers.Add(1)
	}
	c.lost = append(c.lost, s.lost[c.tag]...)
	delete(s.lost, c.tag)
	for _, l := range c.lost {
		for _, q := range l.queues {
			c.index(q)
		}
	}
}

// release has the lanes of a call used again. If it was not answered, the next call in the lane has
// a higher number, so this one is refused from then on.
func (s *Store) release(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.lane != 0 {
		s.lanes = append(s.lanes, c.lane)
		c.lane = 0
	}
	for _, l := range c.lost {
		if c.err == nil {
			s.lanes = append(s.lanes, l.lane)
		} else {
			s.lost[c.tag] = append(s.lost[c.tag], l)
		}
	}
	c.lost = nil
}

func (s *Store) laneName(lane int) string { return "c" + s.session + ":" + strconv.Itoa(lane) }
