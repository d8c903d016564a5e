package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// width is how many columns a table has at most, unless -wide is given.
const width = 80

// A table is lines of cells below a heading.
type table struct {
	head []string
	left string // a letter for each column: l, r, or L for the one that is cut in long lines
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table, in most columns or, if that is 0, as many as it takes. Cells are made
// safe for a terminal.
func (t *table) write(w io.Writer, most int) {
	lines := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, line := range lines {
		for i := range line {
			line[i] = manage.Line(line[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
	}
	if cut := strings.IndexByte(t.left, 'L'); most > 0 && cut >= 0 {
		sum := 2 * (len(widths) - 1)
		for _, n := range widths {
			sum += n
		}
		if sum > most {
			widths[cut] = max(widths[cut]-(sum-most), min(widths[cut], 8))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			if i > 0 {
				b.WriteString("  ")
			}
			cell = shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.left[i] == 'r' {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// shorten cuts a text to so many characters.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// columns returns how wide tables are.
func (c *call) columns() int {
	if c.wide {
		return 0
	}
	return width
}

// facts writes pairs of names and values below each other. Pairs without a value are left out.
func facts(w io.Writer, pairs ...string) {
	longest := 0
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			longest = max(longest, utf8.RuneCountInString(pair[0]))
		}
	}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", longest, pair[0], manage.Line(pair[1]))
		}
	}
}

// drop removes a column.
func (t *table) drop(i int) {
	t.head = slices.Delete(t.head, i, i+1)
	t.left = t.left[:i] + t.left[i+1:]
	for r := range t.rows {
		t.rows[r] = slices.Delete(t.rows[r], i, i+1)
	}
}
