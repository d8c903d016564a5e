package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// runSelf runs one test in another process and returns its exit code.
func runSelf(t *testing.T, test string, env ...string) int {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	return exit.ExitCode()
}

func TestNewerFormat(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs)
	require.NoError(t, s.db.Set([]byte{keyVersion}, append([]byte(magic), version+1), pebble.Sync))
	require.NoError(t, s.Close())
	_, err := Open("db", WithFS(fs))
	require.ErrorIs(t, err, store.ErrNewer)
	_, err = Verify("db", WithFS(fs))
	require.ErrorIs(t, err, store.ErrNewer)
}

func TestForeignDatabase(t *testing.T) {
	fs := vfs.NewMem()
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: logger{}})
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte("something"), nil, pebble.Sync))
	require.NoError(t, db.Close())
	_, err = Open("db", WithFS(fs))
	require.ErrorIs(t, err, store.ErrCorrupt)
}

// filled returns the files of a store of n jobs in tables, by name.
func filled(t *testing.T, n int, flushed bool) map[string][]byte {
	fs := vfs.NewMem()
	s := mustOpen(t, fs)
	var ops []store.Op
	for i := range n {
		add := &store.Add{When: store.When{At: time.UnixMilli(int64(1000 + i))}}
		add.Job = store.Job{Queue: "q", Key: string(binary.BigEndian.AppendUint32(nil, uint32(i))),
			Body: bytes.Repeat([]byte{byte(i)}, 100)}
		ops = append(ops, add)
	}
	require.NoError(t, s.Do(context.Background(), ops))
	if flushed {
		require.NoError(t, s.db.Flush())
	}
	require.NoError(t, s.Close())
	names, err := fs.List("db")
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		if f, err := fs.Open("db/" + name); err == nil {
			files[name], err = io.ReadAll(f)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	return files
}

// damaged returns a file system with the files, one of them changed.
func damaged(t *testing.T, files map[string][]byte, suffix string,
	change func([]byte) []byte) vfs.FS {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("db", 0o755))
	for name, content := range files {
		// Pebble's file system spoils what it is given, to find misuse.
		content = bytes.Clone(content)
		if strings.Contains(name, suffix) && len(content) > 0 {
			content = change(content)
		}
		f, err := fs.Create("db/"+name, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return fs
}

// TestDamagedTables flips bits all over the tables. Whatever can be opened delivers what can be
// read, never something wrong; the damage is logged and Verify finds it.
func TestDamagedTables(t *testing.T) {
	const n = 5000
	files := filled(t, n, true)
	size := 0
	for name, content := range files {
		if strings.HasSuffix(name, ".sst") {
			size = max(size, len(content))
		}
	}
	require.NotZero(t, size)
	opened, most := 0, 0
	for at := 0; at < size; at += size / 5 {
		fs := damaged(t, files, ".sst", func(b []byte) []byte {
			b[min(at, len(b)-1)] ^= 0x40
			return b
		})
		var log bytes.Buffer
		s, err := Open("db", WithFS(fs), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			require.ErrorIs(t, err, store.ErrCorrupt)
			t.Log(err)
			continue
		}
		opened++
		got := 0
		for {
			claim, err := do(s, &store.Claim{Queue: "q", Max: 1000, Lease: time.Hour})
			require.NoError(t, err)
			for _, j := range claim.Jobs {
				i := binary.BigEndian.Uint32([]byte(j.Key))
				require.Equal(t, bytes.Repeat([]byte{byte(i)}, 100), j.Body)
				require.Equal(t, int64(1000+i), j.Due.UnixMilli())
			}
			if got += len(claim.Jobs); len(claim.Jobs) == 0 {
				break
			}
		}
		most = max(most, n-got)
		require.NoError(t, s.Close())
		if got < n {
			require.Contains(t, log.String(), "damaged")
			r, err := Verify("db", WithFS(fs))
			if err == nil {
				require.NotEmpty(t, r.Problems)
			} else {
				require.ErrorIs(t, err, store.ErrCorrupt)
			}
		}
	}
	t.Logf("opened %d, at most %d jobs lost", opened, most)
	require.Greater(t, opened, 3)
}

// TestDamagedLog flips bits in the log and cuts its tail.
func TestDamagedLog(t *testing.T) {
	files := filled(t, 500, false)
	for name, change := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
	} {
		for _, suffix := range []string{".log", "MANIFEST"} {
			fs := damaged(t, files, suffix, change)
			s, err := Open("db", WithFS(fs), WithLogger(slog.New(slog.DiscardHandler)))
			t.Log(name, suffix, err)
			if err != nil {
				require.ErrorIs(t, err, store.ErrCorrupt)
				continue
			}
			require.NoError(t, s.Close())
		}
	}
}

// TestDamagedManifest flips bits all over the MANIFEST, cuts it, empties it and removes it: every
// job is there, as the copy takes its place. Damage to the copy does nothing.
func TestDamagedManifest(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem)
	const n = 20
	for i := range n { // a table for each job, so a part of the MANIFEST is not enough
		addKeyed(t, s, string(rune('a'+i)), store.When{})
		require.NoError(t, s.db.Flush())
	}
	require.NoError(t, s.Close())
	d, err := pebble.Peek("db", mem)
	require.NoError(t, err)
	manifest := d.ManifestFilename
	copied, _ := copyOf(manifest)
	size := len(readAll(mem, manifest))
	require.Greater(t, size, 1000)
	require.Equal(t, readAll(mem, manifest), readAll(mem, copied))

	check := func(t *testing.T, name string, logged bool, change func([]byte) []byte) {
		fs := changed(t, mem, name, change)
		if logged {
			r, _ := Verify("db", WithFS(fs))
			require.NotEmpty(t, r.Problems)
		}
		var log bytes.Buffer
		s, err := Open("db", WithFS(fs), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		claim, err := do(s, &store.Claim{Queue: "q", Max: 2 * n, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, claim.Jobs, n)
		require.NoError(t, s.Close())
		require.Equal(t, logged, strings.Contains(log.String(), "MANIFEST ends before"))
		mustVerify(t, fs)
	}
	for at := 0; at < size; at += 29 {
		for _, bit := range []byte{1, 0x80} {
			t.Run("flipped", func(t *testing.T) {
				check(t, manifest, true, func(b []byte) []byte { b[at] ^= bit; return b })
			})
		}
		t.Run("cut", func(t *testing.T) {
			check(t, manifest, true, func(b []byte) []byte { return b[:at] })
		})
	}
	remove := func([]byte) []byte { return nil }
	t.Run("removed", func(t *testing.T) { check(t, manifest, true, remove) })
	t.Run("copy flipped", func(t *testing.T) {
		check(t, copied, false, func(b []byte) []byte { b[size/2] ^= 1; return b })
	})
	t.Run("copy removed", func(t *testing.T) { check(t, copied, false, remove) })
}

// TestDamagedFooter destroys the end of one table after the other, without which Pebble reads
// nothing of it. What is in the other tables is delivered, unless the names of the queues were in
// this one: then the store does not open.
func TestDamagedFooter(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem)
	const n = 10_000
	var ops []store.Op
	for i := range n {
		ops = append(ops, &store.Add{When: store.When{At: time.UnixMilli(int64(i + 1))},
			Job: store.Job{Queue: "q", Body: bytes.Repeat([]byte{byte(i)}, 1000)}})
	}
	require.NoError(t, s.Do(context.Background(), ops))
	require.NoError(t, s.db.Flush())
	require.NoError(t, s.db.Compact(context.Background(), []byte{0}, []byte{255}, false))
	require.NoError(t, s.Close())
	names, err := mem.List("db")
	require.NoError(t, err)
	tables, opened, got := 0, 0, 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		fs := changed(t, mem, "db/"+name, func(b []byte) []byte {
			clear(b[len(b)-30:])
			return b
		})
		var log bytes.Buffer
		s, err := Open("db", WithFS(fs), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			require.ErrorIs(t, err, store.ErrCorrupt)
			continue
		}
		opened++
		claim, err := do(s, &store.Claim{Queue: "q", Max: n, Lease: time.Hour})
		require.NoError(t, err)
		require.Less(t, len(claim.Jobs), n)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), "damaged")
		got += n - len(claim.Jobs)
	}
	t.Logf("%d of %d stores opened, which lack %d of %d jobs in all", opened, tables, got, n)
	require.Equal(t, tables-1, opened)
	require.LessOrEqual(t, got, n, "each job is lacking in one store at most")
}

// changed returns a copy of the files, one of them changed, or removed if that makes it nil.
func changed(t *testing.T, in vfs.FS, name string, change func([]byte) []byte) vfs.FS {
	fs := vfs.NewMem()
	_, err := vfs.Clone(in, fs, "db", "db")
	require.NoError(t, err)
	b := change(readAll(fs, name))
	if b == nil {
		require.NoError(t, fs.Remove(name))
		return fs
	}
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, errors.Join(err, f.Close()))
	return fs
}
