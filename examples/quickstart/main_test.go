package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	t.Logf("\n%s", &out)
	for _, line := range []string{
		"AfterFunc: called", "Stop: true", "Reset: true", "Reset: called", "gopher closed", "Every: beat",
		"stopped, true", "the clock shows", "the callback is done", "error <nil>",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "never")
}
