package bench

import (
	"context"
	"database/sql"
	_ "embed"
	"path/filepath"
	"testing"
	"time"

	"github.com/mikestefanello/backlite"
	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"
	_ "modernc.org/sqlite"
)

// openSQLite opens a database as the READMEs of both queues do.
func openSQLite(b testing.TB) *sql.DB {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "jobs.db")+
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	check(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { check(b, db.Close()) })
	return db
}

type backliteTask struct {
	Job  int
	Body []byte
}

func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: queue, MaxAttempts: 1, Timeout: time.Minute}
}

// openBacklite returns backlite, which does not poll: it waits for the next job.
func openBacklite(b testing.TB, handle func(int)) func(int, time.Time) error {
	c, err := backlite.NewClient(backlite.ClientConfig{
		DB:           openSQLite(b),
		NumWorkers:   workers,
		ReleaseAfter: time.Hour,
	})
	check(b, err)
	check(b, c.Install())
	c.Register(backlite.NewQueue(func(_ context.Context, t backliteTask) error {
		handle(t.Job)
		return nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	c.Start(ctx)
	b.Cleanup(func() { c.Stop(ctx); cancel() })
	return func(job int, due time.Time) error {
		_, err := c.Add(backliteTask{job, make([]byte, bodySize)}).At(due).Save()
		return err
	}
}

// goqiteSchema is schema_sqlite.sql of goqite, which it does not export.
//
//go:embed testdata/goqite.sql
var goqiteSchema string

// openGoqite returns goqite with its interval between two looks. 0 stands for the default.
func openGoqite(poll time.Duration) opener {
	return func(b testing.TB, handle func(int)) func(int, time.Time) error {
		db := openSQLite(b)
		_, err := db.Exec(goqiteSchema)
		check(b, err)
		q := goqite.New(goqite.NewOpts{DB: db, Name: queue})
		r := jobs.NewRunner(jobs.NewRunnerOpts{Queue: q, Limit: workers, PollInterval: poll})
		r.Register(queue, func(_ context.Context, b []byte) error { return handleBody(handle, b) })
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() { r.Start(ctx); close(over) }()
		b.Cleanup(func() { cancel(); <-over })
		return func(job int, due time.Time) error {
			_, err := jobs.Create(ctx, q, queue,
				goqite.Message{Body: body(job), Delay: max(time.Until(due), 0)})
			return err
		}
	}
}
