package main

import (
	"bytes"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWalk follows timers on the fake clock.
func TestWalk(t *testing.T) {
	for delay, want := range map[int][]string{
		11: {"0 s  it is filed in the first wheel, slot 11, due at 11 s"},
		144: {"0 s  it is filed in the second wheel, slot 12, due at 144 s",
			"132 s  it moves to the first wheel, slot 0, due at 144 s"},
		200: {"0 s  it is filed in the second wheel, slot 16, due at 192 s",
			"180 s  it moves to the first wheel, slot 8, due at 200 s"},
		310: {"0 s  it is filed in the third wheel, slot 2, due at 288 s",
			"144 s  it moves to the second wheel, slot 1, due at 300 s",
			"288 s  it moves to the first wheel, slot 22, due at 310 s"},
		1727: {"0 s  it is filed in the third wheel, slot 11, due at 1584 s",
			"1440 s  it moves to the second wheel, slot 23, due at 1716 s",
			"1704 s  it moves to the first wheel, slot 23, due at 1727 s"},
	} {
		want = append(want, fmt.Sprintf("%d s  it fires", delay))
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, walk(&out, time.Second, delay))
			moves := regexp.MustCompile(`\d+ s  it .*`)
			require.Equal(t, want, moves.FindAllString(out.String(), -1))
		})
	}
}
