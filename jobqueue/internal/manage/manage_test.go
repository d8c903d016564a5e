package manage

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "0 ns",
		999:                             "999 ns",
		1500:                            "1.5 µs",
		999_499:                         "999 µs",
		999_500:                         "1 ms",
		12_340_000:                      "12.3 ms",
		time.Second:                     "1 s",
		59_949 * time.Millisecond:       "59.9 s",
		59_950 * time.Millisecond:       "1 min",
		90 * time.Second:                "1 min 30 s",
		time.Hour:                       "1 h",
		59*time.Minute + 59*time.Second: "59 min 59 s",
		3599*time.Second + 6e8:          "1 h",
		36 * time.Hour:                  "1 d 12 h",
		100 * 24 * time.Hour:            "100 d",
		400 * 24 * time.Hour:            "1 y 35 d",
		math.MaxInt64:                   "292 y 172 d",
		-time.Second:                    "-1 s",
		math.MinInt64:                   "-292 y 172 d",
	} {
		require.Equal(t, want, Duration(d), int64(d))
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "3d": 72 * time.Hour,
		"1d12h":  36 * time.Hour,
		"1d0.5h": 24*time.Hour + 30*time.Minute, "-5s": -5 * time.Second,
		"106751d": 106751 * 24 * time.Hour,
	} {
		d, err := ParseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, d, s)
	}
	for _, s := range []string{
		"", "d", "5", "1d-1h", "1d+1h", "-1d", "+1d", "1dd", "1.5d", "106752d", "106751d24h",
		"99999999999d", "1d 1h", "soon", "1h1d",
	} {
		_, err := ParseDuration(s)
		require.ErrorIs(t, err, jobqueue.ErrInvalid, s)
	}
}

func TestTexts(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, "in 1 min 30 s", Ago(now.Add(90*time.Second), now))
	require.Equal(t, "2 s ago", Ago(now.Add(-2*time.Second), now))
	require.Equal(t, "now", Ago(now.Add(-999*time.Millisecond), now))
	require.Equal(t, "in 292 y 172 d", Ago(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), now),
		"the longest there is")
	require.Equal(t, "1,234,567", Count(1234567))
	require.Equal(t, "-1,234", Count(-1234))
	require.Equal(t, "999", Count(999))
	require.Equal(t, []string{"999 B", "1 kB", "1.05 MB", "1 MB"},
		[]string{Bytes(999), Bytes(1000), Bytes(1 << 20), Bytes(999_950)})
	require.Equal(t, "9.22 EB", Bytes(int64(math.MaxInt64)))
	require.Equal(t, []string{"0/s", "0.25/s", "99.9/s", "12,346/s"},
		[]string{PerSecond(0), PerSecond(0.25), PerSecond(99.9), PerSecond(12345.6)})
	require.Equal(t, "over 1 h 23 min", Bound(math.MaxInt64))
	require.Equal(t, "1 h 23 min", Duration(jobqueue.HistogramBound(23)), "as Bound says")
}

func TestLine(t *testing.T) {
	for s, want := range map[string]string{
		"plain":         "plain",
		`a "b" \n`:      `a "b" \n`,
		"two\nlines":    `two\nlines`,
		"\x1b[2J \"x\"": `\x1b[2J "x"`,
		"\xff":          `\xff`,
		"\u202egnp.exe": `\u202egnp.exe`,
		"héllo 時輪":      "héllo 時輪",
		"back\\slash\n": `back\\slash\n`,
	} {
		require.Equal(t, want, Line(s))
	}
}

// TestBody: what a list has of a body is whole characters, and Bytes gives back what is there.
func TestBody(t *testing.T) {
	for _, c := range []struct {
		body, preview string
		most          int
		isCut         bool
	}{
		{"", "", 5, false},
		{"hello", "hello", 5, false},
		{"hello!", "hello…", 5, true},
		{"ééé", "éé…", 5, true},
		{"a\x1bb", "0x611b62", 5, false},
		{"\xff\xfe", "0xfffe", 5, false},
		{"text then \xff", "0x7465787420…", 5, true},
		{"a\r\nb\n", `a\r\nb\n`, 5, false},
	} {
		job := jobOf(&jobqueue.Job{Body: []byte(c.body), State: jobqueue.Ready}, c.most)
		require.Equal(t, c.preview, job.Preview(), "%q", c.body)
		require.Equal(t, c.isCut, job.BodyCut, "%q", c.body)
		require.True(t, strings.HasPrefix(c.body, string(job.Bytes())))
		require.Equal(t, len(c.body), job.BodyBytes)
	}
}

// TestErrors: an error that crosses a connection is the same error there.
func TestErrors(t *testing.T) {
	for _, kind := range kinds {
		f, status := FailureOf(kind.err)
		require.Equal(t, kind.code, f.Code)
		require.GreaterOrEqual(t, status, 400)
		require.ErrorIs(t, f.Err(), kind.err)
		require.EqualError(t, f.Err(), kind.err.Error())
	}
}
