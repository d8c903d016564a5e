package pebblestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// TestKill kills a process that adds, claims and acknowledges. It says what it has done; all of
// this is found, attempts included, although claims are not synced.
func TestKill(t *testing.T) {
	if path := os.Getenv("PEBBLESTORE_KILL"); path != "" {
		victim(path)
		return
	}
	path := filepath.Join(t.TempDir(), "store")
	added, acked, attempts := map[string]bool{}, map[string]bool{}, map[string]int{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "PEBBLESTORE_KILL="+path, fmt.Sprint("ROUND=", round))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 2000 {
				require.NoError(t, cmd.Process.Kill())
			}
			what, key, _ := strings.Cut(lines.Text(), " ")
			switch what {
			case "add":
				added[key] = true
			case "claim":
				attempts[key]++
			case "ack":
				acked[key] = true
			}
		}
		cmd.Wait()
	}
	r, err := Verify(path)
	require.NoError(t, err)
	require.Empty(t, r.Problems)
	s, err := Open(path)
	require.NoError(t, err)
	jobs, _, err := s.List(context.Background(), "q", store.Ready, "", 1<<30)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, j := range jobs {
		found[j.Key] = true
		require.False(t, acked[j.Key], "%s came back", j.Key)
		// The process may have been killed before it could say what it claimed.
		require.GreaterOrEqual(t, j.Attempts, attempts[j.Key], j.Key)
	}
	lost := 0
	for key := range added {
		if !found[key] && !acked[key] {
			lost++ // or acknowledged without the time to say so
		}
	}
	require.LessOrEqual(t, lost, 4*8)
	t.Logf("added %d, acknowledged %d, found %d, acknowledged silently %d", len(added), len(acked),
		len(jobs), lost)
	require.NoError(t, s.Close())
}

// victim writes a line after each thing that it has done, until it is killed.
func victim(path string) {
	s, err := Open(path)
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%s-%d-%d", os.Getenv("ROUND"), c, i)
				if _, err := do(s, &store.Add{Job: store.Job{Queue: "q", Key: key}}); err != nil {
					panic(err)
				}
				os.Stdout.WriteString("add " + key + "\n")
				claim, err := do(s, &store.Claim{Queue: "q", Max: 1, Lease: time.Hour})
				if err != nil {
					panic(err)
				}
				for _, j := range claim.Jobs {
					os.Stdout.WriteString("claim " + j.Key + "\n")
					if i%2 == 0 {
						continue
					}
					if _, err := do(s,
						&store.Finish{Queue: "q", ID: j.ID, Token: j.Token}); err != nil {
						panic(err)
					}
					os.Stdout.WriteString("ack " + j.Key + "\n")
				}
			}
		})
	}
	wg.Wait()
}

// TestBackup makes a backup under load. It has all that was added before and nothing that is
// halfway.
func TestBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s, err := Open(path)
	require.NoError(t, err)
	stop := make(chan struct{})
	var mu sync.Mutex
	var added []store.ID
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				add, err := do(s, &store.Add{Job: store.Job{Queue: "q", Key: fmt.Sprint(c, "-", i),
					Body: make([]byte, 100)}, When: store.When{In: time.Hour}})
				if err != nil {
					return
				}
				mu.Lock()
				added = append(added, add.ID)
				mu.Unlock()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	mu.Lock()
	before := len(added)
	mu.Unlock()
	require.NoError(t, s.Backup(context.Background(), path+"-copy"))
	require.Error(t, s.Backup(context.Background(), path+"-copy"), "there is something already")
	close(stop)
	wg.Wait()
	require.NoError(t, s.Close())

	r, err := Verify(path + "-copy")
	require.NoError(t, err)
	require.Empty(t, r.Problems)
	require.GreaterOrEqual(t, r.Live, before)
	s, err = Open(path + "-copy")
	require.NoError(t, err)
	for _, id := range added[:before] {
		_, err := s.Get(context.Background(), "q", store.Ref{ID: id})
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
}
