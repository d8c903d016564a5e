package story

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Diary prints what happens, with the time of the story in front. It may be used by
// several goroutines at once, and prints their lines in the order of their times: mu
// guards the reading of the clock and what follows it.
type Diary struct {
	*Clock
	Out    io.Writer // guarded by mu once several goroutines use the diary
	layout string    // of the time, as in time.Format
	mu     sync.Mutex
}

// NewDiary prints to out.
func NewDiary(out io.Writer, c *Clock, layout string) *Diary {
	return &Diary{Clock: c, Out: out, layout: layout}
}

// Printf prints a line, or more of them indented.
func (d *Diary) Printf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.StoryAt(time.Now()).Format(d.layout)
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+strings.Repeat(" ", len(now)+2))
	fmt.Fprintf(d.Out, "%s  %s\n", now, text)
}
