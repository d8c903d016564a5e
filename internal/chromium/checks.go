//go:build unix

package chromium

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// This file has what every page has to stand.

// Forgive has RequireQuiet forgive what the browser says of answers with a status whose addresses
// contain a text: those that the test asks for.
func (b *Browser) Forgive(status int, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgiven = append(b.forgiven,
		fmt.Sprintf(`status of %d .*%s`, status, regexp.QuoteMeta(address)))
}

// RequireQuiet fails the test if the browser has reported an error, or a request to another origin.
func (b *Browser) RequireQuiet(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	forgiven := regexp.MustCompile(strings.Join(append(b.forgiven, `^$`), "|"))
	for _, complaint := range b.complaints {
		require.Regexp(b.t, forgiven, complaint)
	}
	require.NotEmpty(b.t, b.requests)
	for _, address := range b.requests {
		if !strings.HasPrefix(address, "data:") && address != "about:blank" &&
			!strings.HasPrefix(address, origin+"/") {
			require.Fail(b.t, "a request elsewhere", address)
		}
	}
}

// RequireRests fails if the page asks the server, as polls counts, within a time after rest, or
// does not ask after goOn. The script of the page has a variable asking while it waits for an
// answer.
func (b *Browser) RequireRests(
	polls *atomic.Int64, within time.Duration, rest, goOn string,
) {
	b.t.Helper()
	b.Eval(rest, nil)
	b.Until("!asking")
	before := polls.Load()
	time.Sleep(within)
	require.Equal(b.t, before, polls.Load(), "asked after %s", rest)
	b.Eval(goOn, nil)
	for end := time.Now().Add(Reply); polls.Load() == before; time.Sleep(10 * time.Millisecond) {
		require.True(b.t, time.Now().Before(end), "did not go on")
	}
}

// RequireFits fails if the page is wider than the window, or a text is cut off or wider than its
// container. What is meant to be scrolled may be wide.
func (b *Browser) RequireFits(name string) {
	b.t.Helper()
	var wide []string
	b.Eval(`(() => {
		const wide = [];
		if (document.documentElement.scrollWidth > innerWidth) wide.push("the page: " + document.documentElement.scrollWidth);
		for (const el of document.querySelectorAll("body *")) {
			if (el.closest("svg, noscript, template, .hidden")) continue;
			const box = el.getBoundingClientRect();
			if (!box.width || el.parentElement.closest(".scroll")) continue;
			if (box.left < -0.5 || box.right > innerWidth + 0.5) wide.push(el.outerHTML.slice(0, 80) + " ends at " + box.right);
			if (!el.matches(".scroll, pre, select, option, input") && el.scrollWidth > el.clientWidth + 1 && getComputedStyle(el).display !== "inline") wide.push(el.outerHTML.slice(0, 80) + " holds " + el.scrollWidth + " in " + el.clientWidth);
		}
		return wide;
	})()`, &wide)
	require.Empty(b.t, wide, name)
}

// RequireReadable fails if the contrast of a text with its background is below 4.5, the minimum of
// WCAG (AA), or the page has no more than so many texts.
func (b *Browser) RequireReadable(name string, moreThan int) {
	b.t.Helper()
	var found struct {
		Seen  int
		Faint []string
	}
	b.Eval(`(() => {
		const parse = s => { const n = s.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
		const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const ground = el => { for (; el; el = el.parentElement) { const c = parse(getComputedStyle(el).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
		const faint = []; let seen = 0;
		const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walker.nextNode()) {
			const el = walker.currentNode.parentElement;
			if (!walker.currentNode.textContent.trim() || !el.getClientRects().length || el.closest("noscript, script, template, option, .hidden")) continue;
			const style = getComputedStyle(el);
			const a = light(parse(el.closest("svg") ? style.fill : style.color)), b = light(ground(el));
			const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			seen++;
			if (contrast < 4.5) faint.push(el.outerHTML.slice(0, 80) + ": " + contrast.toFixed(2));
		}
		return { seen, faint };
	})()`, &found)
	require.Empty(b.t, found.Faint, name)
	require.Greater(b.t, found.Seen, moreThan, name)
}
