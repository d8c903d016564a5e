package redisstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// TestHealth stops a server and starts it. Each end is logged once, whatever calls meet meanwhile.
func TestHealth(t *testing.T) {
	server := startServer(t)
	var log bytes.Buffer
	s := open(t, clientOf(t, &redis.Options{Addr: server.addr}),
		redisstore.WithPatience(300*time.Millisecond),
		redisstore.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	healthy := func() {
		t.Helper()
		since, err := s.Health()
		require.NoError(t, err)
		require.Zero(t, since)
	}
	try := func() error {
		op := &store.Add{Job: text("x")}
		return errors.Join(s.Do(t.Context(), []store.Op{op}), op.Err)
	}
	logged := func(warnings, infos int) {
		t.Helper()
		require.Equal(t, warnings, strings.Count(log.String(), "level=WARN"), "%s", &log)
		require.Equal(t, infos, strings.Count(log.String(), "level=INFO"), "%s", &log)
	}
	healthy()
	for round := range 2 {
		require.NoError(t, try())
		healthy()
		server.Stop()
		began := time.Now()
		require.Error(t, try())
		logged(round+1, round)
		first, err := s.Health()
		require.ErrorIs(t, err, redisstore.ErrUnavailable)
		require.False(t, first.Before(began) || first.After(time.Now()))
		require.Error(t, try())
		_, getErr := s.Get(t.Context(), q, store.Ref{Key: "x"})
		require.Error(t, getErr)
		since, err := s.Health()
		require.ErrorIs(t, err, redisstore.ErrUnavailable)
		require.Equal(t, first, since, "since the first of them")
		logged(round+1, round)
		server.start(t)
		require.True(t, eventually(time.Minute, func() bool { return try() == nil }))
		healthy()
		require.NoError(t, try())
		logged(round+1, round+1)
	}

	// Full memory is a trouble until something is added, though other calls succeed.
	c := server.client(t)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorIs(t, try(), redisstore.ErrMemory)
	claim(t, s, 1)
	_, err := s.Health()
	require.ErrorIs(t, err, redisstore.ErrMemory)
	logged(3, 2)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, try())
	healthy()
	logged(3, 3)
}
