package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLetters keeps some letters twice, one of which cannot be delivered at first.
func TestLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := jobqueue.NewMemory()
		now := time.Now()
		some := map[string]letter{
			"a": {"ada", "one", now.Add(24 * time.Hour)},
			"b": {"ben", "two", now.Add(10 * year)},
			"c": {"cleo", "three", now.Add(-time.Hour)},
		}
		require.NoError(t, keep(t.Context(), q, some))
		require.NoError(t, keep(t.Context(), q, some))
		var events story.Notes
		failures := 2
		send := func(key string, l letter) error {
			events.Add("%s %s", key, l.Text)
			require.Equal(t, some[key].To, l.To)
			if failures--; key == "a" && failures >= 0 {
				return errors.New("no one opens")
			}
			return nil
		}
		end := story.Background(func(ctx context.Context) error { return deliver(ctx, q, send) })
		time.Sleep(20 * year)
		require.Equal(t, []string{"0s c three", "24h0m0s a one", "24h0m1s a one",
			"87600h0m0s b two"}, events.Lines())
		require.NoError(t, end())
		require.NoError(t, q.Close())
	})
}
