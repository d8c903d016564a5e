//go:build !js && !wasip1

// Package examples tests what all programs in this folder have in common.
package examples

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFlags calls every example wrongly and expects status 2 and a pointer to -h, which explains the
// program and succeeds.
func TestFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every example")
	}
	folder := t.TempDir()
	out, err := exec.Command("go", "build", "-o", folder, "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	programs, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	sources, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.Len(t, programs, len(sources))

	for _, program := range programs {
		t.Run(strings.TrimSuffix(filepath.Base(program), ".exe"), func(t *testing.T) {
			for _, wrong := range []string{"-nonsense", "stray"} {
				out, err := exec.Command(program, wrong).CombinedOutput()
				var exit *exec.ExitError
				require.True(t, errors.As(err, &exit), "%s: %v\n%s", wrong, err, out)
				require.Equal(t, 2, exit.ExitCode(), "%s: %s", wrong, out)
				require.Regexp(t, `-h |usage: go run \./examples/`, string(out), wrong)
			}
			out, err := exec.Command(program, "-h").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `(?m)^(usage: go run \./examples/|Flags:)`, string(out))
		})
	}
}
