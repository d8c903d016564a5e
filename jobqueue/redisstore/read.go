package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has what reads.

// read runs read.lua for shards of a queue and returns their answers.
func (s *Store) read(ctx context.Context, queue string, shards []int, args ...any) (
	answers [][]any, err error,
) {
	full := false
	err = s.repeat(ctx, func(ctx context.Context) error {
		for len(answers) < len(shards) {
			keys := s.keys(tagOf(queue, shards[len(answers)]), []string{queue})
			all := append(readScript.command(full, keys), s.timeArg(), queue)
			answer, err := s.client.Do(ctx, append(all, args...)...).Slice()
			if judge(err) == noScript && !full {
				full = true
				continue
			}
			if err != nil {
				return err
			}
			full = false
			answers = append(answers, answer)
		}
		return nil
	})
	return answers, err
}

func (s *Store) allShards() []int {
	list := make([]int, s.shards)
	for i := range list {
		list[i] = i
	}
	return list
}

// guard turns an answer that read.lua does not give into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", store.ErrCorrupt, r)
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, queue string, ref store.Ref) (j store.Job, err error) {
	if err := s.begin(ctx); err != nil {
		return j, err
	}
	defer s.users.Done()
	defer guard(&err)
	id, key := refArgs(ref)
	answers, err := s.read(ctx, queue, []int{s.shardOf(ref)}, "g", id, key)
	if err != nil {
		return j, err
	}
	job, ok := answers[0][2].([]any)
	if !ok {
		return j, store.ErrNotFound
	}
	shown, err := shownJob(queue, job, answers[0][0].(int64))
	return shown.Job, err
}

// A listed is a job with its place in a list.
type listed struct {
	store.Job
	score int64
	rank  string // priority and sequence
}

// shownJob reads a job as read.lua shows it.
func shownJob(queue string, a []any, now int64) (l listed, err error) {
	record := a[3].(string)
	j, ok := decodeJob(queue, parseID(a[0].(string)), record, a[4].(string))
	if !ok {
		return l, fmt.Errorf("%w: the record of job %s", store.ErrCorrupt, j.ID)
	}
	score, err := strconv.ParseInt(a[2].(string), 10, 64)
	if err != nil {
		return l, fmt.Errorf("%w: the time of job %s: %w", store.ErrCorrupt, j.ID, err)
	}
	switch at := millis(score); a[1].(string) {
	case "z":
		j.Due, j.Token, j.State = at, 0, store.Delayed
		if score <= now {
			j.State = store.Ready
		}
	case "l":
		j.LeaseEnd, j.State = at, store.Leased
	case "d":
		j.Finished, j.State = at, store.Dead
	case "f":
		j.Finished, j.State = at, store.Done
	}
	l = listed{Job: j, score: score, rank: record[:6]}
	if len(a) > 5 {
		l.score, err = strconv.ParseInt(a[5].(string), 10, 64)
	}
	return l, err
}

func compareListed(a, b listed) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.rank, b.rank),
		cmp.Compare(a.ID, b.ID))
}

// List implements store.Store. A Cursor is the place of the last job: score and member.
func (s *Store) List(
	ctx context.Context, queue string, state store.State, after store.Cursor, limit int,
) (jobs []store.Job, next store.Cursor, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, "", err
	}
	defer s.users.Done()
	defer guard(&err)
	if state < store.Delayed || state > store.Done || limit < 1 {
		return nil, "", nil
	}
	score, member := "", ""
	if after != "" {
		text, digits, ok := strings.Cut(string(after), ".")
		b, err := hex.DecodeString(digits)
		if !ok || err != nil || len(b) != 14 {
			return nil, "", fmt.Errorf("redisstore: %q is not a cursor", after)
		}
		score, member = text, string(b)
	}
	limit = min(limit, perCall)
	answers, err := s.read(ctx, queue, s.allShards(), "l", int(state), limit+1, score, member)
	if err != nil {
		return nil, "", err
	}
	var all, ends []listed // ends has the last job of each answer that is cut short
	for _, answer := range answers {
		for _, a := range answer[2].([]any) {
			l, err := shownJob(queue, a.([]any), answer[0].(int64))
			if err != nil {
				return nil, "", err
			}
			all = append(all, l)
		}
		if answer[3].(int64) == 1 {
			ends = append(ends, all[len(all)-1])
		}
	}
	slices.SortStableFunc(all, compareListed)
	isCut := len(all) > limit
	all = all[:min(limit, len(all))]
	if len(ends) > 0 {
		first := slices.MinFunc(ends, compareListed)
		for len(all) > 0 && compareListed(all[len(all)-1], first) > 0 {
			all = all[:len(all)-1]
		}
		isCut = true
	}
	for _, l := range all {
		jobs = append(jobs, l.Job)
	}
	if isCut {
		last := all[len(all)-1]
		next = store.Cursor(fmt.Sprintf("%d.%x", last.score, last.rank+idBytes(last.ID)))
	}
	return jobs, next, nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) (infos []store.QueueInfo, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.users.Done()
	defer guard(&err)
	var names []string
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		names, err = s.client.SMembers(ctx, s.set.prefix+":queues").Result()
		return err
	})
	slices.Sort(names)
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		var info store.QueueInfo
		var there bool
		if strings.HasSuffix(name, "/") {
			info, there, err = s.namespace(ctx, name)
		} else {
			info, there, err = s.info(ctx, name)
		}
		if there {
			infos = append(infos, info)
		}
	}
	return infos, err
}

func (s *Store) namespace(ctx context.Context, name string) (
	info store.QueueInfo, there bool, err error,
) {
	var text string
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		text, err = s.client.HGet(ctx, s.key(tagOf(name, 0), "", "t"), "L").Result()
		if err == redis.Nil {
			err = nil
		}
		return err
	})
	info = store.QueueInfo{Name: name, Limits: decodeLimits(text), Next: -1}
	return info, info.Limits != store.Limits{}, err
}

// info sums up the shards of a queue.
func (s *Store) info(ctx context.Context, name string) (
	info store.QueueInfo, there bool, err error,
) {
	answers, err := s.read(ctx, name, s.allShards(), "i")
	info = store.QueueInfo{Name: name, Next: -1}
	for _, a := range answers {
		paused, ok := a[2].(int64)
		if !ok {
			continue // no job was ever in this shard
		}
		now := moment{a[0].(int64), a[1].(int64)}
		info.Paused = paused == 1
		info.Limits = decodeLimits(a[3].(string))
		for i, n := range []*int{
			&info.Delayed, &info.Ready, &info.Leased, &info.Dead, &info.Done,
		} {
			*n += int(a[4+i].(int64))
		}
		bytes, _ := strconv.ParseInt(a[9].(string), 10, 64)
		info.Bytes += bytes
		if d := now.until(a[10].(int64)); d >= 0 && (info.Next < 0 || d < info.Next) {
			info.Next = d
		}
		if head := a[11].(int64); head >= 0 && head <= now.ms {
			late := time.Duration(now.ms-head)*time.Millisecond + time.Duration(now.ns)
			info.Oldest = max(info.Oldest, late)
		}
	}
	held := info.Delayed + info.Ready + info.Leased + info.Dead + info.Done
	return info, held > 0 || info.Paused || info.Limits != store.Limits{}, err
}

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, queue string, ends []time.Duration) (
	counts []int, err error,
) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.users.Done()
	defer guard(&err)
	args := []any{"n"}
	for _, end := range ends {
		args = append(args, int64(end/time.Millisecond), int64(end%time.Millisecond))
	}
	counts = make([]int, len(ends))
	answers, err := s.read(ctx, queue, s.allShards(), args...)
	for _, a := range answers {
		for i := range counts {
			counts[i] += int(a[2+i].(int64))
		}
	}
	return counts, err
}
