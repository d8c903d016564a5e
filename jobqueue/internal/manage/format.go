package manage

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// This file has the texts that the command and the page share.

// Count formats a whole number with commas between the thousands.
func Count[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes formats a number of bytes with three digits.
func Bytes[N int | int64](n N) string {
	if n < 1000 {
		return strconv.FormatInt(int64(n), 10) + " B"
	}
	f := float64(n)
	unit := 0
	for f >= 999.5 && unit < 6 {
		f /= 1000
		unit++
	}
	return digits(f) + " " + []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}[unit]
}

// PerSecond formats a rate.
func PerSecond(n float64) string {
	if n >= 99.95 {
		return Count(int64(math.Round(n))) + "/s"
	}
	return digits(n) + "/s"
}

// Ago says how far t is from now: "in 5 min 3 s", "5 min 3 s ago", or "now" for less than a second.
func Ago(t, now time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return "never"
	case d >= time.Second:
		return "in " + Duration(d)
	case d <= -time.Second:
		return Duration(-d) + " ago"
	}
	return "now"
}

// Next formats the time until something, nil for none.
func Next(d *time.Duration) string {
	switch {
	case d == nil:
		return "–"
	case *d < time.Millisecond:
		return "now"
	}
	return Duration(*d)
}

// Some formats a number of jobs.
func Some(n int) string {
	if n == 1 {
		return "1 job"
	}
	return Count(n) + " jobs"
}

// LimitsText says what the limits are, nil for none.
func LimitsText(l *Limits) string {
	if l == nil {
		return "none"
	}
	var parts []string
	if l.Jobs > 0 {
		parts = append(parts, Some(l.Jobs))
	}
	if l.Bytes > 0 {
		parts = append(parts, Bytes(l.Bytes))
	}
	over := "; over it an add fails"
	if l.DropOldest {
		over = "; over it the first ones due die"
	}
	return strings.Join(parts, ", ") + over
}

// Instant formats an instant in full.
func Instant(t time.Time) string { return t.Format("2006-01-02 15:04:05.000 -0700") }

// Duration formats a duration with three digits, or as two units.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64))
	}
	ns := float64(d)
	for _, small := range []struct {
		unit float64
		name string
	}{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}} {
		if n := ns / small.unit; n < 999.5 && (small.unit < 1e9 || n < 59.95) {
			return digits(n) + " " + small.name
		}
	}
	for _, large := range []struct {
		unit, part int64
		name, rest string
		limit      int64 // of the unit
	}{
		{60, 1, "min", "s", 60}, {3600, 60, "h", "min", 24}, {86400, 3600, "d", "h", 365},
		{365 * 86400, 86400, "y", "d", math.MaxInt64 / 365},
	} {
		parts := int64(math.Round(d.Seconds() / float64(large.part)))
		if per := large.unit / large.part; parts < large.limit*per {
			s := Count(parts/per) + " " + large.name
			if rest := parts % per; rest != 0 {
				s += " " + Count(rest) + " " + large.rest
			}
			return s
		}
	}
	panic("unreachable: the last unit has no limit")
}

// Bound formats a bound of a histogram, whose last one is the longest duration there is.
func Bound(d time.Duration) string {
	if d == math.MaxInt64 {
		return "over 1 h 23 min"
	}
	return Duration(d)
}

// digits formats n, which is not negative and below 1000, with three digits, without zeros at the
// end.
func digits(n float64) string {
	decimals := 2
	if n >= 9.995 {
		decimals = 1
	}
	if n >= 99.95 {
		decimals = 0
	}
	s := strconv.FormatFloat(n, 'f', decimals, 64)
	if decimals > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// String says when a recurring job runs.
func (r *Repeat) String() string {
	s := "every " + Duration(r.Every)
	switch {
	case r.Cron != "":
		s = "at " + r.Cron
	case r.Scheduler != "":
		s = "as the scheduler " + r.Scheduler + " says"
	}
	if r.Zone != "" {
		s += ", in " + r.Zone
	}
	if s += ", run " + Count(r.Runs+1); r.Times > 0 {
		s += " of " + Count(r.Times)
	}
	if !r.Until.IsZero() {
		s += ", until " + Instant(r.Until)
	}
	return s
}

// ParseDuration is time.ParseDuration with days: "3d", "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	days, rest, ok := strings.Cut(s, "d")
	if !ok {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if ok && rest == "" {
		rest = "0s"
	}
	d, err2 := time.ParseDuration(rest)
	const most = math.MaxInt64 / (24 * time.Hour)
	if err != nil || err2 != nil || ok && (d < 0 || rest[0] == '+' || n > uint64(most)) ||
		d > math.MaxInt64-time.Duration(n)*24*time.Hour {
		return 0, invalid("%q is not a duration, such as 90s, 1h30m or 3d", s)
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// Line returns s on one line of printable characters, safe for a terminal: what does not print is
// escaped as in Go, and so are backslashes if anything else is.
func Line(s string) string {
	if isPrintable(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// Quote returns s in quotation marks, on one line of printable characters.
func Quote(s string) string { return strconv.Quote(s) }

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s,
		func(r rune) bool { return !unicode.IsPrint(r) })
}

// IsText reports whether a body is a text that can be shown as it is: UTF-8 with line ends and
// tabs, and no other characters that do not print.
func IsText(body []byte) bool {
	s := strings.ReplaceAll(string(body), "\r\n", "\n")
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\t'
	})
}

// Preview returns the start of a job's body on a line: text, or hexadecimal digits behind 0x.
func (j *Job) Preview() string {
	switch {
	case j.BodyHidden:
		return "hidden"
	case j.BodyBytes == 0:
		return ""
	}
	body := j.Bytes()
	s := Line(string(body))
	if j.BodyBase64 != nil || !IsText(body) {
		const digits = "0123456789abcdef"
		b := []byte("0x")
		for _, c := range body {
			b = append(b, digits[c>>4], digits[c&15])
		}
		s = string(b)
	}
	if j.BodyCut {
		s += "…"
	}
	return s
}
