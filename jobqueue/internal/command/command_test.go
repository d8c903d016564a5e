package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
	"github.com/go-timingwheel/timingwheel/jobqueue/page"
)

var update = flag.Bool("update", false, "write what the commands print into testdata")

func TestMain(m *testing.M) {
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// shop returns a Client in memory that has queues in all states, five seconds old. It is for a
// synctest bubble.
func shop(t *testing.T) *jobqueue.Client {
	ctx := t.Context()
	c := jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
	add := func(queue, body string, opts ...jobqueue.AddOption) {
		_, err := c.Add(ctx, queue, []byte(body), opts...)
		require.NoError(t, err)
	}
	for i := range 40 {
		const body = `{"order":%d,"lines":[{"sku":"A-17","n":2},{"sku":"B-4","n":1}]}`
		add("orders/expire", fmt.Sprintf(body, i+1),
			jobqueue.In(time.Duration(i*i)*7*time.Second+10*time.Second),
			jobqueue.Key(fmt.Sprintf("order-%d", i+1)))
	}
	add("webhooks", `{"url":"https://shop.example/hook"}`, jobqueue.MaxAttempts(2),
		jobqueue.Retain(time.Hour))
	add("webhooks", "\x89PNG\x00\xff", jobqueue.MaxAttempts(1))
	add("webhooks", "Dear\x1b[31m customer,\nhello", jobqueue.MaxAttempts(1))
	add("webhooks", "fine", jobqueue.Retain(time.Hour))
	add("imports", "batch 0")
	add("imports", "batch 1")
	add("imports", "batch 2", jobqueue.Priority(5))
	add("reports", "", jobqueue.Cron("0 6 * * *", "Europe/Berlin"), jobqueue.Key("daily"),
		jobqueue.Times(10))
	add("letters", "Dear me", jobqueue.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.NoError(t, c.Limit(ctx, "orders/", jobqueue.Limits{Jobs: 100, Bytes: 1e6}))
	require.NoError(t, c.Limit(ctx, "imports", jobqueue.Limits{Jobs: 5, DropOldest: true}))
	require.NoError(t, c.Pause(ctx, "letters"))

	c.Handle("webhooks", func(_ context.Context, job *jobqueue.Job) error {
		time.Sleep(3 * time.Millisecond)
		if string(job.Body) == "fine" {
			return nil
		}
		return errors.New("503 Service Unavailable\nbody: \x1b[2Jtry later")
	}, jobqueue.Backoff(2*time.Second))
	c.Handle("imports", func(ctx context.Context, _ *jobqueue.Job) error {
		<-ctx.Done()
		return ctx.Err()
	}, jobqueue.Workers(2), jobqueue.Lease(20*time.Second))
	runs, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(runs) }()
	t.Cleanup(func() {
		stop()
		synctest.Wait()
		for job, err := range c.Jobs(context.Background(), "imports", jobqueue.Leased) {
			require.NoError(t, err)
			c.Cancel(context.Background(), "imports", jobqueue.ByID(job.ID))
		}
		require.NoError(t, <-ended)
		require.NoError(t, c.Close())
	})
	time.Sleep(5 * time.Second)
	synctest.Wait()
	return c
}

// A direct is a Transport that calls a handler. A real connection is outside a synctest bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "192.0.2.1:1"
	if served.Body == nil {
		served.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, served)
	return w.Result(), nil
}

// both runs f with a program on a file and one on a page.
func both(t *testing.T, f func(t *testing.T, c *jobqueue.Client, p *program, in, out,
	errs *bytes.Buffer)) {
	for _, where := range []string{"file", "page"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := shop(t)
				in, out, errs := &bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}
				p := &program{
					in: in, out: out, errs: errs,
					getenv: func(name string) string {
						return map[string]string{
							"file JOBQUEUE_FILE": "orders.db",
							"page JOBQUEUE_URL":  "http://localhost:6060/jobs/",
						}[where+" "+name]
					},
					open: func(string) (manage.Service, func() error, error) {
						return manage.Local{Client: c}, func() error { return nil }, nil
					},
					client: &http.Client{Transport: direct{page.Handler(c)}},
				}
				f(t, c, p, in, out, errs)
			})
		})
	}
}

// TestTranscripts runs the command lines in testdata, which begin with $, on a file and through a
// page, and compares what they print with the lines that follow.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			both(t, func(t *testing.T, _ *jobqueue.Client, p *program, _, out, errs *bytes.Buffer) {
				var got bytes.Buffer
				for line := range strings.Lines(string(want)) {
					if strings.HasPrefix(line, "#") {
						got.WriteString(line)
						continue
					}
					command, ok := strings.CutPrefix(line, "$ ")
					if !ok {
						continue
					}
					args := words(t, strings.TrimSpace(command))
					if args[0] == "sleep" {
						d, err := time.ParseDuration(args[1])
						require.NoError(t, err)
						time.Sleep(d)
						synctest.Wait()
						fmt.Fprintf(&got, "$ %s\n", strings.TrimSpace(command))
						continue
					}
					require.Equal(t, "jobqueue", args[0])
					out.Reset()
					errs.Reset()
					status := p.main(t.Context(), args[1:])
					synctest.Wait() // for handlers that the command has ended or begun
					fmt.Fprintf(&got, "$ %s\n%s%s", strings.TrimSpace(command), out, errs)
					if status != 0 {
						fmt.Fprintf(&got, "[exit %d]\n", status)
					}
					require.True(t, utf8.Valid(out.Bytes()))
					require.NotContains(t, out.String()+errs.String(), "\x1b",
						"safe for a terminal")
					if !strings.Contains(command, "-json") && !strings.Contains(command, "-wide") {
						for printed := range strings.Lines(out.String()) {
							if strings.HasPrefix(printed, " ... ") { // a cursor is as long as it is
								continue
							}
							require.LessOrEqual(t, utf8.RuneCountInString(printed), width+1,
								printed)
						}
					}
				}
				if *update {
					require.NoError(t, os.WriteFile(file, got.Bytes(), 0o644))
				}
				require.Equal(t, string(want), got.String())
			})
		})
	}
}

// words splits a command line as a shell does, with both kinds of quotation marks.
func words(t *testing.T, s string) (words []string) {
	var word []rune
	var quote rune
	inWord := false
	for _, r := range s + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && r == ' ':
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		default:
			word, inWord = append(word, r), true
		}
	}
	require.Zero(t, quote, s)
	return words
}

// TestJSON: what -json prints is JSON, an object on a line, and the same on a file and through a
// page.
func TestJSON(t *testing.T) {
	printed := map[string][]string{}
	both(t, func(t *testing.T, _ *jobqueue.Client, p *program, _, out, errs *bytes.Buffer) {
		for _, args := range [][]string{
			{"stats"}, {"stats", "webhooks"}, {"list"},
			{"list", "orders/expire", "-state", "delayed", "-limit", "2"},
			{"dead"}, {"due"}, {"due", "orders/expire"}, {"show", "reports", "-key", "daily"},
			{"add", "imports", "-in", "1h", "x"}, {"cancel", "orders/expire", "-key", "order-3"},
			{"reschedule", "orders/expire", "-key", "order-4", "-in", "1d"},
			{"requeue", "webhooks", "-all"},
			{"pause", "imports"}, {"resume", "imports"},
			{"purge", "webhooks", "-state", "done", "-yes"},
		} {
			out.Reset()
			require.Zero(t, p.main(t.Context(), append(args, "-json")), "%v: %s", args, errs)
			var all []string
			for line := range strings.Lines(out.String()) {
				var v map[string]any
				require.NoError(t, json.Unmarshal([]byte(line), &v), "%v: %s", args, line)
				all = append(all, line)
			}
			require.NotEmpty(t, all, "%v", args)
			name := strings.Join(args, " ")
			if before, ok := printed[name]; ok {
				require.Equal(t, before, all, name)
			}
			printed[name] = all
		}
	})
}

// TestBodies: a body comes back as it went in, whatever it is made of.
func TestBodies(t *testing.T) {
	both(t, func(t *testing.T, _ *jobqueue.Client, p *program, in, out, errs *bytes.Buffer) {
		for i, body := range []string{
			"", "x", "-", "-json", "two\nlines\n", "\xff\x00\x1b[2J", "héllo 時輪", `{"a": 1}`,
			"\r\n",
			strings.Repeat("é", 1000), strings.Repeat("\x80", 1000),
		} {
			key := fmt.Sprint("body-", i)
			in.Reset()
			in.WriteString(body)
			out.Reset()
			require.Zero(t, p.main(t.Context(),
				[]string{"add", "letters", "-key", key, "-in", "1h", "-"}), errs.String())
			out.Reset()
			require.Zero(t, p.main(t.Context(), []string{"show", "letters", "-key", key, "-body"}),
				errs.String())
			require.Equal(t, body, out.String())
		}
		out.Reset()
		require.Zero(t, p.main(t.Context(),
			[]string{"add", "-in", "1h", "-key", "dashes", "--", "letters",
				"-json"}), errs.String())
		out.Reset()
		require.Zero(t, p.main(t.Context(), []string{"show", "letters", "-key", "dashes", "-body"}),
			errs.String())
		require.Equal(t, "-json", out.String())
	})
}

// TestMore: a list is read in pages with what each ended with.
func TestMore(t *testing.T) {
	both(t, func(t *testing.T, _ *jobqueue.Client, p *program, _, out, errs *bytes.Buffer) {
		args := []string{"list", "orders/expire", "-state", "delayed", "-limit", "15", "-json"}
		var keys []string
		for next := ""; ; {
			out.Reset()
			require.Zero(t, p.main(t.Context(), append(args, "-after", next)), errs.String())
			var jobs manage.Jobs
			require.NoError(t, json.Unmarshal(out.Bytes(), &jobs))
			for _, job := range jobs.Jobs {
				keys = append(keys, job.Key)
			}
			if next = jobs.Next; next == "" {
				break
			}
		}
		require.Len(t, keys, 40)
		require.Equal(t, "order-1", keys[0])
		require.Equal(t, "order-40", keys[39])
	})
}

// TestWatch: it prints readings until it has printed as many as asked for, or is interrupted.
func TestWatch(t *testing.T) {
	both(t, func(t *testing.T, c *jobqueue.Client, p *program, _, out, errs *bytes.Buffer) {
		if p.getenv("JOBQUEUE_URL") == "" {
			require.Equal(t, exitUsage, p.main(t.Context(), []string{"watch"}))
			require.Contains(t, errs.String(), "pass -url")
			return
		}
		began := time.Now()
		require.Zero(t, p.main(t.Context(), []string{"watch", "-n", "3", "-every", "5s",
			"webhooks"}), errs.String())
		require.Equal(t, 10*time.Second, time.Since(began))
		readings := strings.Split(out.String(), "\n\n")
		require.Len(t, readings, 3)
		require.Contains(t, readings[0], "2000-01-01 00:00:05\nQUEUE")
		require.Contains(t, readings[0], "–", "no rate yet")
		require.Contains(t, readings[1], "0/s")
		require.NotContains(t, out.String(), "\x1b")

		p.isTerminal = true
		ctx, interrupt := context.WithTimeout(t.Context(), 7*time.Second)
		defer interrupt()
		out.Reset()
		require.Zero(t, p.main(ctx, []string{"watch"}), errs.String())
		require.Equal(t, 4, strings.Count(out.String(), "\x1b[H\x1b[2J"))
	})
}

// TestMisuse: a command line that makes no sense has status 2 and does not open anything.
func TestMisuse(t *testing.T) {
	for _, line := range []string{
		"", "frobnicate", "stats a b", "list -state", "list -state sideways", "list -limit x",
		"show",
		"show q", "show q 12", "show q 0000000000000 -key k", "add", "add q a b", "cancel q",
		"cancel q zzz!", "reschedule q 0000000000002",
		"reschedule q 0000000000002 -in 1s -at 2000-01-01",
		"requeue q", "requeue q 0000000000002 -all", "purge q", "purge q -state leased", "pause",
		"backup", "list -nonsense", "watch -every 1ms -url http://x/",
		"stats -file a -url http://x/", "stats -url ftp://x/",
		"stats -url x",
		"stats -url redis://localhost:6379/0", "verify redis://localhost:6379/0",
		"list -after x", "dead -after x", "list -limit 0", "list -limit 1001",
		"add q -at yesterday", "add q -in soon", "add q -in 1h -at 2001-01-01",
		"add q -on-conflict x", "verify", "watch -file x",
	} {
		var out, errs bytes.Buffer
		p := &program{
			out: &out, errs: &errs, getenv: func(string) string { return "" },
			open: func(string) (manage.Service, func() error, error) { panic("opened") },
			client: &http.Client{Transport: direct{http.HandlerFunc(func(http.ResponseWriter,
				*http.Request) {
				panic("asked")
			})}},
		}
		args := words(t, line)
		if len(args) > 1 && !strings.Contains(line, "-url") && !strings.Contains(line, "-file") &&
			args[0] != "verify" {
			args = append(args, "-file", "orders.db")
		}
		require.Equal(t, exitUsage, p.main(t.Context(), args), line)
		require.Empty(t, out.String(), line)
		require.NotEmpty(t, errs.String(), line)
	}
}

// TestHelp: every command explains itself within 80 columns, with status 0.
func TestHelp(t *testing.T) {
	help := func(args ...string) string {
		var out, errs bytes.Buffer
		p := &program{out: &out, errs: &errs, getenv: func(string) string { return "" }}
		require.Zero(t, p.main(t.Context(), args), args)
		require.Empty(t, errs.String())
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")),
				width+1, line)
		}
		return out.String()
	}
	all := help("-h")
	for _, c := range commands() {
		require.Contains(t, all, "\n  "+c.name+" ")
		require.Contains(t, help(c.name, "-h"), "usage: jobqueue "+c.name+" ")
		require.Equal(t, help(c.name, "-h"), help("help", c.name))
	}
	require.Contains(t, help("-version"), "jobqueue ")
}

// TestAnswersOfOthers: what is not the page of a job queue is said so, and no text of it can do
// harm in a terminal.
func TestAnswersOfOthers(t *testing.T) {
	for _, c := range []struct {
		want    string
		handler http.HandlerFunc
	}{
		{"http://x/jobs/ is not the page of a job queue",
			func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "<html>welcome")
			}},
		{`http://x/jobs/: 404 Not Found: "no \x1b[2J such page"`,
			func(w http.ResponseWriter, r *http.Request) {
				http.Error(w, "no \x1b[2J such page", http.StatusNotFound)
			}},
		{`boo \x1b[2J`, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(500)
			fmt.Fprint(w, `{"error":"boo \u001b[2J"}`)
		}},
		{"http://x/jobs/: unexpected EOF", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"queues":[`)
		}},
		{"http://x/jobs/: the page has moved to http://y:xxxxx@z/",
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://y:secret@z/", http.StatusFound)
			}},
	} {
		var out, errs bytes.Buffer
		p := &program{
			out: &out, errs: &errs, getenv: func(string) string { return "" },
			client: &http.Client{Transport: direct{c.handler}},
		}
		require.Equal(t, exitFailed, p.main(t.Context(), []string{"stats", "-url",
			"http://x/jobs/"}))
		require.Equal(t, "jobqueue: "+c.want+"\n", errs.String())
		require.Empty(t, out.String())
	}
}

// TestReadOnly: a page for reading refuses changes, by name.
func TestReadOnly(t *testing.T) {
	c := jobqueue.NewMemory()
	defer c.Close()
	_, err := c.Add(t.Context(), "q", []byte("secret"), jobqueue.In(time.Hour), jobqueue.Key("k"))
	require.NoError(t, err)
	remote, err := manage.NewRemote("http://x/",
		&http.Client{Transport: direct{page.Handler(c, page.ReadOnly(), page.HideBodies())}})
	require.NoError(t, err)
	_, err = remote.Do(t.Context(), manage.Action{Do: manage.DoPause, Queue: "q"})
	require.ErrorIs(t, err, manage.ErrReadOnly)
	job, err := remote.Job(t.Context(), "q", jobqueue.ByKey("k"))
	require.NoError(t, err)
	require.Empty(t, job.Body)
	require.True(t, job.BodyHidden)

	var out, errs bytes.Buffer
	p := &program{
		out: &out, errs: &errs, getenv: func(string) string { return "" },
		client: &http.Client{Transport: direct{page.Handler(c, page.HideBodies())}},
	}
	require.Equal(t, exitFailed, p.main(t.Context(), []string{"show", "q", "-key", "k", "-body",
		"-url", "http://x/"}))
	require.Contains(t, errs.String(), "hides bodies")
}

// TestFile: the command on a real store, backup and verification included; and while another
// process, or in this case another Client, has it open.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "orders.db"), filepath.Join(dir, "copy.db")
	run := func(status int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		p := &program{
			in: strings.NewReader(""), out: &out, errs: &errs, open: openFile,
			getenv: func(name string) string {
				return map[string]string{"JOBQUEUE_FILE": path}[name]
			},
		}
		require.Equal(t, status, p.main(t.Context(), args), "%v: %s%s", args, &out, &errs)
		return out.String() + errs.String()
	}
	require.Contains(t, run(exitFailed, "stats"), "no such file")
	require.NoFileExists(t, path, "looking makes no store")
	require.Contains(t, run(exitFailed, "stats", "-file", dir), "there is no job queue in it")
	require.Contains(t, run(exitFailed, "verify", dir), "there is no job queue in it")

	c, err := jobqueue.Open(path)
	require.NoError(t, err)
	_, err = c.Add(t.Context(), "letters", []byte("Dear me"), jobqueue.In(time.Hour),
		jobqueue.Key("mine"))
	require.NoError(t, err)
	for _, command := range []string{"stats", "verify"} {
		require.Contains(t, run(exitFailed, command, "-file", path),
			"another process has it open; if that serves the page, pass its address with -url")
	}
	require.NoError(t, c.Close())

	require.Contains(t, run(0, "list"), "mine  Dear me")
	require.Contains(t, run(0, "cancel", "letters", "-key", "mine"), "cancelled mine")
	require.Len(t, strings.TrimSpace(run(0, "add", "letters", "again")), 13)
	require.Contains(t, run(0, "backup", copied), "the backup is "+copied)
	run(exitFailed, "backup", copied)
	require.Contains(t, run(0, "verify", copied), "live jobs  1")
	require.JSONEq(t, `{"queues":1,"live":1,"dead":0,"done":0,"problems":[]}`,
		run(0, "verify", "-json", copied))
	require.Contains(t, run(0, "list", "-file", copied), "again")

	damaged, err := filepath.Glob(filepath.Join(copied, "MANIFEST-*"))
	require.NoError(t, err)
	for _, file := range damaged {
		require.NoError(t, os.Truncate(file, 10))
	}
	run(exitFailed, "verify", copied)
}
