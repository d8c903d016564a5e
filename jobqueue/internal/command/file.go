package command

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/pebblestore"
)

// This file has what knows of the embedded store.

// openFile opens the store in a path, which must exist.
func openFile(path string) (manage.Service, func() error, error) {
	if err := isStore(path); err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := jobqueue.Open(path, jobqueue.WithLogger(log))
	if err != nil {
		return nil, nil, err
	}
	return manage.Local{Client: c}, c.Close, nil
}

func verify(c *call) error {
	if err := c.parse(0, 1); err != nil {
		return err
	}
	path := c.arg(0)
	if path == "" {
		path = c.file
	}
	if path == "" || c.url != "" || strings.Contains(path, "://") {
		return misused("it needs the path of a store; there is none in Redis")
	}
	if err := isStore(path); err != nil {
		return err
	}
	r, err := pebblestore.Verify(path)
	if err != nil {
		return fileError(path, err)
	}
	if c.json {
		err = c.print(struct {
			Queues   int      `json:"queues"`
			Live     int      `json:"live"`
			Dead     int      `json:"dead"`
			Done     int      `json:"done"`
			Problems []string `json:"problems"`
		}{r.Queues, r.Live, r.Dead, r.Done, append([]string{}, r.Problems...)})
		if err != nil {
			return err
		}
	} else {
		facts(c.out, "queues", manage.Count(r.Queues), "live jobs", manage.Count(r.Live),
			"dead jobs", manage.Count(r.Dead), "done jobs", manage.Count(r.Done))
	}
	if len(r.Problems) == 0 {
		return nil
	}
	for _, problem := range r.Problems {
		c.complain(fmt.Errorf("%s: %s", path, problem))
	}
	return errReported
}
