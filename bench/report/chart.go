package main

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file draws charts as SVG by hand. They are only lines, ticks and words, and a plotting
// library would bring fonts and rasterisers with it. A chart has a background of its own, light or
// dark as the reader prefers, so it is readable on every page.

// A chart is lines over two axes.
type chart struct {
	workload       string // whose section it belongs to
	file           string
	title          string
	x, y           axis
	lines          []line
	note           string // under the title
	baselineAtZero bool   // a linear y axis begins at 0
}

// An axis maps values to lengths.
type axis struct {
	label string
	scale func(v float64) float64 // nil for linear
	ticks []tick                  // nil for chosen ones
}

type tick struct {
	at    float64
	label string
}

// A line is one implementation's points. Its colour and its mark depend on its place among all
// implementations, so it looks the same in every chart.
type line struct {
	name   string
	style  int
	points []point
	bare   bool // mark only some of the many points
}

type point struct{ x, y float64 }

const (
	chartWidth, chartHeight        = 860.0, 504.0
	plotLeft, plotRight            = 84.0, 690.0
	plotTop, plotBottom            = 104.0, 438.0
	fontFamily                     = "system-ui, -apple-system, 'Segoe UI', Arial, sans-serif"
	legendLeft, legendStep, titleY = 708.0, 22.0, 30.0
	noteWidth                      = 112 // characters; three lines fit
)

// A theme has the colours for one background.
type theme struct {
	background, ink, soft, grid string
	lines                       []string // one for each implementation
}

// The lines of the light theme have the colours of Okabe and Ito, which the colour-blind can tell
// apart, without the yellow, which does not show on white, and with some more. Those of the dark
// theme are their brighter relatives.
var (
	light = theme{"#ffffff", "#24292f", "#57606a", "#d8dee4", []string{
		"#0072b2", "#56b4e9", "#c2185b", "#1a237e", "#d55e00", "#000000",
		"#009e73", "#cc79a7", "#e69f00", "#8c6d31", "#7f7f7f", "#6a3d9a",
	}}
	dark = theme{"#161b22", "#e6edf3", "#9198a1", "#30363d", []string{
		"#3aa0ff", "#9cdcff", "#ff6fa5", "#a9b1ff", "#ff8a3d", "#ffffff",
		"#2fd6a3", "#f0b3d6", "#ffc53d", "#c9a66b", "#a6a6a6", "#b98bf0",
	}}
)

// style writes a theme's rules. Lines and their marks take the colour of class c0, c1 and so on.
func (t theme) style() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".back{fill:%s}text{fill:%s}.soft{fill:%s}.grid{stroke:%s}.axis{stroke:%s}",
		t.background, t.ink, t.soft, t.grid, t.ink)
	for i, c := range t.lines {
		fmt.Fprintf(&b, ".c%d{color:%s}", i, c)
	}
	return b.String()
}

// logScale is for values above 0.
func logScale(v float64) float64 { return math.Log10(v) }

// svg draws the chart.
func (c *chart) svg() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" `+
		`width="%g" height="%g" font-family="%s" font-size="13" role="img">`+"\n",
		chartWidth, chartHeight, chartWidth, chartHeight, fontFamily)
	fmt.Fprintf(&b, "<title>%s</title>\n", xmlText(c.title))
	fmt.Fprintf(&b, "<style>%s\n@media(prefers-color-scheme:dark){%s}</style>\n",
		light.style(), dark.style())
	fmt.Fprintf(&b, `<rect class="back" width="%g" height="%g" rx="6"/>`+"\n",
		chartWidth, chartHeight)
	text(&b, plotLeft, titleY, "start", `font-size="17" font-weight="600"`, c.title)
	for i, l := range wrap(c.note, noteWidth) {
		text(&b, plotLeft, titleY+21+17*float64(i), "start", `class="soft"`, l)
	}

	var xs, ys []float64
	for _, l := range c.lines {
		for _, p := range l.points {
			xs, ys = append(xs, p.x), append(ys, p.y)
		}
	}
	if c.baselineAtZero && c.y.scale == nil {
		ys = append(ys, 0)
	}
	x := c.x.fit(xs, plotLeft, plotRight, 8, false)
	y := c.y.fit(ys, plotBottom, plotTop, 6, true)

	for _, t := range y.ticks {
		at := y.to(t.at)
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %.1fH%.1f"/>`+"\n", plotLeft, at, plotRight)
		text(&b, plotLeft-12, at+4, "end", "", t.label)
	}
	for _, t := range x.ticks {
		at := x.to(t.at)
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %.1fV%.1f"/>`+"\n", at, plotTop, plotBottom)
		text(&b, at, plotBottom+20, "middle", "", t.label)
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%.1f %.1fV%.1fH%.1f" fill="none"/>`+"\n",
		plotLeft, plotTop, plotBottom, plotRight)
	text(&b, (plotLeft+plotRight)/2, plotBottom+46, "middle", "", c.x.label)
	turned := fmt.Sprintf(`transform="translate(20 %.1f) rotate(-90)"`, (plotTop+plotBottom)/2)
	text(&b, 0, 0, "middle", turned, c.y.label)

	// This library's lines come first in the list, and so on top of the others. The very first is
	// drawn below all others, so thick that it shows where another line covers it.
	lowest := func(l line) bool { return l.style == 0 }
	for _, l := range c.lines {
		if lowest(l) {
			l.draw(&b, x, y)
		}
	}
	for _, l := range slices.Backward(c.lines) {
		if !lowest(l) {
			l.draw(&b, x, y)
		}
	}
	// Each name stands where its line ends, or as near to it as the other names allow.
	end := func(l line) float64 { return y.to(l.points[len(l.points)-1].y) }
	named := slices.Clone(c.lines)
	slices.SortStableFunc(named, func(a, b line) int { return cmp.Compare(end(a), end(b)) })
	var ends []float64
	for _, l := range named {
		ends = append(ends, end(l))
	}
	apart(ends, legendStep, plotBottom)
	for i, l := range named {
		at := ends[i]
		fmt.Fprintf(&b, `<path d="M%.1f %.1fh26" %s/>`+"\n", legendLeft, at, l.stroke())
		l.mark(&b, legendLeft+13, at)
		text(&b, legendLeft+36, at+4, "start", "", l.name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// apart moves ascending positions until each is a step from the next and the last is not below the
// bottom.
func apart(at []float64, step, bottom float64) {
	for i := range at[1:] {
		at[i+1] = max(at[i+1], at[i]+step)
	}
	for i := len(at) - 1; i >= 0; i-- {
		at[i] = min(at[i], bottom)
		bottom = at[i] - step
	}
}

// A fitted axis maps values to lengths.
type fitted struct {
	ticks []tick
	to    func(v float64) float64
}

// fit lays the axis out over the values from one length to another. A rounded axis ends at ticks.
func (a axis) fit(values []float64, from, to float64, most int, rounded bool) fitted {
	scale := a.scale
	if scale == nil {
		scale = func(v float64) float64 { return v }
	}
	lo, hi := slices.Min(values), slices.Max(values)
	ticks := a.ticks
	if ticks == nil && a.scale != nil {
		ticks, lo, hi = decades(lo, hi)
	} else if ticks == nil {
		ticks = linearTicks(lo, hi, most)
		if rounded {
			lo, hi = min(lo, ticks[0].at), max(hi, ticks[len(ticks)-1].at)
		}
	} else {
		for _, t := range ticks {
			lo, hi = min(lo, t.at), max(hi, t.at)
		}
	}
	first, last := scale(lo), scale(hi)
	if first == last {
		first, last = first-0.5, last+0.5
	}
	return fitted{ticks, func(v float64) float64 {
		return from + (scale(v)-first)/(last-first)*(to-from)
	}}
}

// decades returns ticks at 1, 10, 100, and at 2 and 5 between them if there are few, and the bounds
// of the axis.
func decades(lo, hi float64) (ticks []tick, first, last float64) {
	steps := []float64{1, 2, 5}
	if hi/lo > 1000 {
		steps = steps[:1]
	}
	var at []float64
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, s := range steps {
			at = append(at, s*math.Pow(10, e))
		}
	}
	// Keep one tick outside the values on each side.
	i, j := 0, len(at)-1
	for i+1 < len(at) && at[i+1] <= lo {
		i++
	}
	for j > i+1 && at[j-1] >= hi {
		j--
	}
	for _, v := range at[i : j+1] {
		ticks = append(ticks, tick{v, axisNumber(v)})
	}
	return ticks, at[i], at[j]
}

// linearTicks returns ticks at multiples of 1, 2 or 5 times a power of ten that span the values.
func linearTicks(lo, hi float64, most int) []tick {
	if hi <= lo {
		hi = lo + 1
	}
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(most))))
	for _, m := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*m) <= float64(most) {
			step *= m
			break
		}
	}
	var ticks []tick
	for v := math.Floor(lo/step) * step; ; v += step {
		v = math.Round(v/step) * step
		ticks = append(ticks, tick{v, axisNumber(v)})
		if v >= hi {
			return ticks
		}
	}
}

// axisNumber writes a tick's value: 0.5, 200, 10 k, 1 M.
func axisNumber(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64) // 0.30000000000000004
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', -1, 64) + " M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + " k"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// class is the class of the line's colour.
func (l line) class() string { return fmt.Sprintf("c%d", l.style%len(light.lines)) }

func (l line) stroke() string {
	width := 2.0
	if l.style == 0 { // this library
		width = 5
	}
	dash := ""
	if l.name == nameOfFloor {
		dash = ` stroke-dasharray="6 4"`
	}
	return fmt.Sprintf(`class="%s" fill="none" stroke="currentColor" stroke-width="%g" `+
		`stroke-linejoin="round"%s`, l.class(), width, dash)
}

func (l line) draw(b *bytes.Buffer, x, y fitted) {
	var d strings.Builder
	for i, p := range l.points {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x.to(p.x), y.to(p.y))
	}
	fmt.Fprintf(b, `<path d="%s" %s/>`+"\n", d.String(), l.stroke())
	for i, p := range l.points {
		if !l.bare || i%10 == 5 {
			l.mark(b, x.to(p.x), y.to(p.y))
		}
	}
}

// mark draws a point in a shape of its own, for readers who cannot see the colour.
func (l line) mark(b *bytes.Buffer, x, y float64) {
	var d string
	switch l.style % 5 {
	case 0:
		radius := 4.0
		if l.style == 0 { // so large that no other mark covers it
			radius = 7
		}
		fmt.Fprintf(b, `<circle class="%s" fill="currentColor" cx="%.1f" cy="%.1f" r="%g"/>`+"\n",
			l.class(), x, y, radius)
		return
	case 1:
		d = "-4-4h8v8h-8z"
	case 2:
		d = "0-5l5 9h-10z"
	case 3:
		d = "0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"
	case 4:
		d = "0 5l-5-9h10z"
	}
	fmt.Fprintf(b, `<path class="%s" fill="currentColor" d="M%.1f %.1fm%s"/>`+"\n",
		l.class(), x, y, d)
}

func text(b *bytes.Buffer, x, y float64, anchor, more, s string) {
	if s == "" {
		return
	}
	if more != "" {
		more = " " + more
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n",
		x, y, anchor, more, xmlText(s))
}

// wrap breaks text at spaces into lines of at most width characters.
func wrap(s string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(s) {
		last := len(lines) - 1
		if last >= 0 && len([]rune(lines[last]))+1+len([]rune(word)) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func xmlText(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic(err) // a Buffer takes everything
	}
	return b.String()
}
