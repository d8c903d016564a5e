package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file hears of jobs that other processes add.
//
// The scripts announce on the channel of a shard that it has something to claim earlier than
// before. One subscription has the channels of all queues that the Store was asked to claim from.
// What was announced while it was broken is lost, so a queue is looked at whenever it is
// subscribed to, and now and then to be safe.

const (
	// A queue is looked at after so long, within a quarter more or less. It is how late a job may
	// be whose announcement was lost.
	safetyLook = 30 * time.Second
	// Many queues are looked at less often, so that an idle process sends less than one command a
	// second with what go-redis sends to keep the subscription.
	lookEach = 4 * time.Second
)

// Watch implements store.Store.
func (s *Store) Watch(f func(queue string, in time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
	if s.follow != nil || s.closed || s.set.clock != nil {
		return
	}
	s.follow = make(chan string)
	s.users.Add(1)
	go s.listen(s.follow)
	for name := range s.queues {
		s.followLocked(name)
	}
}

// followLocked has the channels of a queue subscribed to.
func (s *Store) followLocked(name string) {
	if s.follow == nil {
		return
	}
	follow := s.follow
	s.users.Add(1)
	go func() {
		defer s.users.Done()
		select {
		case follow <- name:
		case <-s.ending:
		}
	}()
}

type channel struct {
	queue string
	shard int
}

// listen runs until the Store is closed.
func (s *Store) listen(follow chan string) {
	defer s.users.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sub *redis.PubSub
	var heard <-chan any
	channels := map[string]channel{}
	queues := map[string]bool{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	look := func(name string) {
		for shard := range s.shards {
			s.announced(name, shard, 0, 0)
		}
	}
	for {
		select {
		case <-s.ending:
			if sub != nil {
				_ = sub.Close()
			}
			return
		case name := <-follow:
			if queues[name] {
				continue
			}
			queues[name] = true
			var list []string
			for shard := range s.shards {
				c := s.key(tagOf(name, shard), name, "w")
				channels[c] = channel{name, shard}
				list = append(list, c)
			}
			if sub == nil {
				sub = s.client.Subscribe(ctx, list...)
				heard = sub.ChannelWithSubscriptions()
			} else {
				_ = sub.Subscribe(ctx, list...) // tried again by sub itself
			}
			timer.Reset(s.pause(len(queues)))
		case m := <-heard:
			switch m := m.(type) {
			case *redis.Subscription: // it stands, perhaps anew
				if c, ok := channels[m.Channel]; ok && m.Kind == "subscribe" {
					s.announced(c.queue, c.shard, 0, 0)
				}
			case *redis.Message:
				s.hear(channels[m.Channel], m.Payload)
			}
		case <-timer.C:
			for name := range queues {
				look(name)
			}
			timer.Reset(s.pause(len(queues)))
		}
	}
}

func (s *Store) pause(queues int) time.Duration {
	d := max(safetyLook, time.Duration(queues*s.shards)*lookEach)
	return d*3/4 + rand.N(d/2)
}

// hear takes an announcement: the session that made it, the session that waits for jobs to the
// millisecond, if there is one, and how many nanoseconds it is until then.
func (s *Store) hear(c channel, text string) {
	words := strings.Split(text, " ")
	if c.queue == "" || len(words) != 3 || words[0] == s.session {
		return
	}
	ns, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return
	}
	in := time.Duration(ns) + s.behind(words[1])
	s.announced(c.queue, c.shard, s.serverTime()+in.Milliseconds(), in)
}

// behind returns how much later than the session that is armed this process looks for a job. Where
// many processes share a queue, each job would wake all of them otherwise. It is short, as the one
// that is armed may be dead or have no worker free.
func (s *Store) behind(armed string) time.Duration {
	if armed == "" || armed == s.session {
		return 0
	}
	return later()
}

func later() time.Duration { return 50*time.Millisecond + rand.N(50*time.Millisecond) }
