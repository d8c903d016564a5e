package main

import (
	"bytes"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTextbookWalk plays the story on the fake clock.
func TestTextbookWalk(t *testing.T) {
	for _, tc := range []struct {
		delay int
		want  []string
	}{
		{200, []string{
			"second wheel, slot 16, which is due at 192 s",
			"first wheel, slot 8, which is due at 200 s",
		}},
		{310, []string{
			"third wheel, slot 2, which is due at 288 s",
			"second wheel, slot 1, which is due at 300 s",
			"first wheel, slot 22, which is due at 310 s",
		}},
		{11, []string{"first wheel, slot 11, which is due at 11 s"}},
		{144, []string{
			"second wheel, slot 12, which is due at 144 s",
			"first wheel, slot 0, which is due at 144 s",
		}},
		{1727, []string{
			"third wheel, slot 11, which is due at 1584 s",
			"second wheel, slot 23, which is due at 1716 s",
			"first wheel, slot 23, which is due at 1727 s",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, run(&out, 50*time.Millisecond, tc.delay))
			require.Equal(t, tc.want, regexp.MustCompile(`\w+ wheel, slot .*`).FindAllString(out.String(), -1))
			require.Contains(t, out.String(), "it fires")
			t.Log(out.String())
		})
	}
}
