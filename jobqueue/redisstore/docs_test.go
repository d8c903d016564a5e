package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/snippets"
)

// TestDocuments type-checks the Go code of the README.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	checker, err := snippets.NewChecker("context",
		"github.com/redis/go-redis/v9",
		"github.com/go-timingwheel/timingwheel/jobqueue",
		"github.com/go-timingwheel/timingwheel/jobqueue/redisstore")
	require.NoError(t, err)
	found, err := snippets.Read("README.md")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, s := range found {
		require.NoError(t, checker.Check(s, `
			var ctx context.Context
			func expire(ctx context.Context, job *jobqueue.Job) error`), "line %d", s.Line)
	}
}
