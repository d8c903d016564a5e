package main

import (
	"fmt"
	"io"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// explain says what is about to happen.
func explain(out io.Writer, cfg config, wanted int) {
	if cfg.conns < wanted {
		fmt.Fprintf(out, "%d connections take two files each, one for each end, and the file limit of this\nprocess is lower: it allows %d connections.\n\n", wanted, cfg.conns)
	}
	fmt.Fprintf(out, "%d connections to an echo server, closed after %v without a message; one wheel, tick %v.\n", cfg.conns, cfg.idle, cfg.tick)
	fmt.Fprintf(out, "%.0f %% of the clients talk until the end, every %v; the others fall silent at random.\n\n", 100*cfg.talking, cfg.idle/talksPerIdle)
	if cfg.idle >= cfg.run {
		fmt.Fprintf(out, "No connection can become idle: the run takes %v only.\n\n", cfg.run)
	}
}

// watch prints a line per second until the run is over.
func watch(out io.Writer, srv *server, run time.Duration) {
	const interval = time.Second
	end := time.NewTimer(run - srv.now())
	defer end.Stop()
	beat := time.NewTicker(interval)
	defer beat.Stop()

	fmt.Fprintln(out, "    time     open  touches/s  closed as idle  pending timers")
	var before int64
	var since time.Duration
	line := func() {
		now, touches := srv.now(), srv.touches.Load()
		rate := float64(touches-before) / (now - since).Seconds()
		before, since = touches, now
		fmt.Fprintf(out, "%6.1f s  %7d  %9.0f  %14d  %14d\n", now.Seconds(), srv.open.Load(), rate, srv.idled.Load(), srv.wheel.Len())
	}
	for {
		select {
		case <-beat.C:
			line()
		case <-end.C:
			// Right after another one it would only repeat it.
			if since == 0 || srv.now()-since > interval/2 {
				line()
			}
			fmt.Fprintln(out)
			return
		}
	}
}

// A result is all there is to say about a run.
type result struct {
	config  config
	wanted  int // connections asked for; config has what the file limit allowed
	took    time.Duration
	touches int64
	verdict verdict
	opening error // why fewer connections were opened than asked for

	cpu      time.Duration // user and system, of the whole process
	cpuKnown bool

	stats timingwheel.Stats
}

func (r result) ok() bool { return r.verdict.ok() }

func (r result) print(out io.Writer) {
	v := r.verdict
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("Connections")
	p("  opened             %7d%s", v.opened, r.shortfall())
	p("  closed for idling  %7d", v.closed)
	if v.delayed > 0 {
		p("    of which         %7d talked, but the machine held the message up for longer than the timeout", v.delayed)
	}
	p("  closed early       %7d", v.early)
	if v.early > 0 {
		p("    the worst by     %s", ms(-v.lateness[0]))
	}
	p("  forgotten          %7d   not closed within %v of the deadline", v.forgotten, r.config.tick+forgottenAfter)
	p("  open at the end    %7d", v.remaining)

	p("")
	p("Lateness, from the deadline to the callback")
	if len(v.lateness) == 0 {
		p("  nothing was closed for idling")
	} else {
		p("  p50 %s   p90 %s   p99 %s   p99.9 %s   max %s", ms(quantile(v.lateness, 0.5)), ms(quantile(v.lateness, 0.9)),
			ms(quantile(v.lateness, 0.99)), ms(quantile(v.lateness, 0.999)), ms(v.lateness[len(v.lateness)-1]))
	}

	p("")
	p("Cost")
	p("  touches     %d, each one Reset, in %.1f s", r.touches, r.took.Seconds())
	switch {
	case !r.cpuKnown:
		p("  CPU         not known on this platform")
	case r.touches > 0:
		p("  CPU         %.2f s user + system, %.1f us per touch: opening the connections", r.cpu.Seconds(), float64(r.cpu.Microseconds())/float64(r.touches))
		p("              and the echo traffic of both ends are in it, the wheel is a small part")
	}

	s := r.stats
	p("")
	p("Wheel")
	p("  started %d = fired %d + stopped %d + dropped %d + pending %d", s.Started, s.Fired, s.Stopped, s.Dropped, s.Pending)
	p("  wake-ups %d, reinserted %d, levels %d, timers in the longest hold of the lock %d", s.Wakeups, s.Reinserted, len(s.Levels), s.LongestHold)

	p("")
	if r.ok() {
		p("Passed: none closed early, none forgotten.")
	} else {
		p("FAILED: %d closed early, %d forgotten.", v.early, v.forgotten)
	}
}

// shortfall says why fewer connections were opened than were asked for.
func (r result) shortfall() string {
	switch opened := r.verdict.opened; {
	case opened >= r.wanted:
		return ""
	case r.opening != nil:
		return fmt.Sprintf("   of %d: %v", r.wanted, r.opening)
	case opened >= r.config.conns:
		return fmt.Sprintf("   of %d, as many as the file limit allows", r.wanted)
	}
	return fmt.Sprintf("   of %d, for which the run was too short", r.wanted)
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}
