package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Changed results do not make the tree dirty; any other change does. A full run refuses a
// dirty tree, or its report says so.
func TestDirtyTree(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	full := parsed(t)
	t.Chdir(t.TempDir())
	ctx := context.Background()
	git := func(args ...string) {
		args = append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	write := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	hash, dirty := commit(ctx)
	require.Equal(t, "unknown", hash)
	require.False(t, dirty)

	git("init")
	write("wheel.go", "package wheel")
	git("add", ".")
	git("commit", "-m", "first")
	hash, dirty = commit(ctx)
	require.Len(t, hash, 12)
	require.False(t, dirty)
	write(filepath.Join(resultsDir, resultsFile), "{}")
	_, dirty = commit(ctx)
	require.False(t, dirty)
	var r report
	require.NoError(t, r.tellSource(ctx, full, nil))
	require.Empty(t, r.Warning)

	for _, file := range []string{"new.go", "wheel.go"} { // untracked, changed
		write(file, "package other")
		_, dirty = commit(ctx)
		require.True(t, dirty, file)
		require.ErrorContains(t, new(report).tellSource(ctx, full, nil), "uncommitted changes")
		marked := full
		marked.dirty = true
		require.NoError(t, r.tellSource(ctx, marked, nil))
		require.Contains(t, r.Warning, "uncommitted changes")
		require.Contains(t, r.Source, "uncommitted changes")
		require.NoError(t, os.RemoveAll("new.go"))
	}
}
