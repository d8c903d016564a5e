package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/snippets"
)

func TestReadmeCompiles(t *testing.T) {
	checker, err := snippets.NewChecker("context",
		"github.com/go-timingwheel/timingwheel/jobqueue",
		"github.com/twmb/franz-go/pkg/kgo",
		"github.com/go-timingwheel/timingwheel/jobqueue/sink/kafka")
	require.NoError(t, err)
	found, err := snippets.Read("README.md")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, s := range found {
		require.NoError(t, checker.Check(s, "var ctx context.Context"), "line %d", s.Line)
	}
}
