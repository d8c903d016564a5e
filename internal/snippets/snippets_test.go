//go:build !js && !wasip1

package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packages are what the snippets of this module's documents use.
var packages = []string{
	"context", "expvar", "fmt", "log", "log/slog", "net", "net/http", "net/http/pprof",
	"sync", "sync/atomic", "testing", "testing/synctest", "time",
	"github.com/go-timingwheel/timingwheel",
	"github.com/go-timingwheel/timingwheel/netidle",
	"github.com/go-timingwheel/timingwheel/wheeldebug",
}

// preambles declare what the text around the snippets speaks of, by file.
var preambles = map[string]string{
	"README.md": `
		var (
			tw      *timingwheel.TimingWheel
			conn    net.Conn
			w       http.ResponseWriter
			r       *http.Request
			answers chan string
			id, user string
			err     error
		)
		func report() {}
		func fetch(ctx context.Context) (string, error)

		// Of module wheelprom, whose own tests compile such a line.
		var registry interface{ MustRegister(...any) }
		var wheelprom struct{ NewCollector func(*timingwheel.TimingWheel) any }`,
	"docs/migrating.md": `
		var (
			tw      *timingwheel.TimingWheel
			ctx     context.Context
			conn    net.Conn
			ln      net.Listener
			buf     []byte
			request struct{ fail, succeed func() }
		)
		func expire() {}
		func handle(message []byte) {}`,
	"wheeldebug/README.md": `
		var tw, sessions, retries *timingwheel.TimingWheel`,
}

// TestDocuments type-checks the Go snippets of every Markdown file of the module. Those below a
// heading that ends in the command of an example are quotations of its source.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(root, "*", "*.md"))
	require.NoError(t, err)
	checker, err := NewChecker(packages...)
	require.NoError(t, err)

	checked := 0
	for _, file := range append(files, more...) {
		name, err := filepath.Rel(root, file)
		require.NoError(t, err)
		name = filepath.ToSlash(name)
		_, err = os.Stat(filepath.Join(filepath.Dir(file), "go.mod"))
		if err == nil && strings.Contains(name, "/") {
			continue // a module of its own, with tests of its own
		}
		found, err := Read(file)
		require.NoError(t, err)
		for _, s := range found {
			if example := exampleOf.FindStringSubmatch(s.Heading); example != nil {
				requireQuoted(t, s, filepath.Join(root, "examples", example[1]))
			} else if err := checker.Check(s, preambles[name]); err != nil {
				t.Errorf("%s: the snippet at line %d does not compile: %v", name, s.Line, err)
			}
			checked++
		}
	}
	require.Greater(t, checked, 20, "snippets found")
}

var (
	exampleOf = regexp.MustCompile("`go run ./examples/(\\w+)`$")
	comment   = regexp.MustCompile(`(^|\s)//.*`)
)

// requireQuoted: each line of the snippet, comments aside, is one of the example's source.
func requireQuoted(t *testing.T, s Snippet, folder string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	lines := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			lines[strings.TrimSpace(comment.ReplaceAllString(line, ""))] = true
			// A comment may hold a line of code.
			lines[strings.TrimSpace(strings.TrimPrefix(line, "//"))] = true
		}
	}
	for line := range strings.Lines(s.Code) {
		if line = strings.TrimSpace(comment.ReplaceAllString(line, "")); !lines[line] {
			t.Errorf("%s: below %q: not in %s: %s", s.File, s.Heading, folder, line)
		}
	}
}

// TestCheck finds what is wrong with a snippet, and where.
func TestCheck(t *testing.T) {
	checker, err := NewChecker("time", "fmt")
	require.NoError(t, err)
	for _, c := range []struct{ code, fault string }{
		{"d := time.Second\n", ""},
		{"import \"fmt\"\n\nfmt.Println(n)\n", ""},
		{"import (\n\t\"fmt\"\n)\n\nfunc f() { fmt.Println(n) }\n", ""},
		{"type t struct{ d time.Duration }\n\nfunc (t) m() {}\n", ""},
		{"x := 1\ny := nothing\n", "page.md:11: undefined: nothing"},
		{"import \"fmt\"\n\nfmt.Println(\n\tnothing)\n", "page.md:13: undefined: nothing"},
		{"func f() {\n\treturn 1\n}\n", "page.md:11: too many return values"},
		{"select {\ncase n := <-c:\n}\n", "page.md:11: declared and not used: n"},
		{"import \"fmt\"\n\nfunc f() {}\n", "page.md:10: \"fmt\" imported and not used"},
		{"for {\n", "page.md:1"},
		{"import \"net/http\"\n\nhttp.NotFound(nil, nil)\n", "package net/http is not among those"},
	} {
		err := checker.Check(Snippet{File: "page.md", Line: 10, Code: c.code},
			"var n int; var c chan int")
		if c.fault == "" {
			require.NoError(t, err, c.code)
		} else {
			require.ErrorContains(t, err, c.fault, c.code)
		}
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const text = "# One\n\n```go\na\n# b\n```\n\n```sh\n# no heading\n```\n\n" +
		"```text\n    ```\n\n## Two\n```go\nc\n```\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	found, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, []Snippet{{file, 4, "One", "a\n# b\n"}, {file, 17, "Two", "c\n"}}, found)
}
