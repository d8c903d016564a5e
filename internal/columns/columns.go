// Columns reports the lines of Go and Markdown files that are wider than 100 columns.
//
//	go run ./internal/columns $(git ls-files '*.go' '*.md')
//
// It prints file:line for each and exits with status 1 if there are any. A character counts as one
// column and a tab as four. Lines that cannot be wrapped are exempt, and so is quoted output: see
// markdownLines and goLines.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	limit    = 100
	tabWidth = 4
)

func main() {
	status := 0
	for _, file := range os.Args[1:] {
		found, err := wide(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for _, l := range found {
			fmt.Printf("%s:%d: %d columns\n", file, l.number, l.columns)
			status = 1
		}
	}
	os.Exit(status)
}

type line struct{ number, columns int }

// wide returns the lines of a file that are too wide and not exempt.
func wide(file string) ([]line, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	if strings.HasSuffix(file, ".go") {
		err = goLines(file, text, lines)
	} else {
		markdownLines(lines)
	}
	var found []line
	for i, s := range lines {
		if n := utf8.RuneCountInString(s) + (tabWidth-1)*strings.Count(s, "\t"); n > limit {
			found = append(found, line{i + 1, n})
		}
	}
	return found, err
}

var (
	fence     = regexp.MustCompile("^\\s*```")
	codeFence = regexp.MustCompile("^\\s*```(go|sh)$")
	address   = regexp.MustCompile(`\]\([^)]*\)`)
	oneWord   = regexp.MustCompile(`^\s*([-*>]\s+)?(\[[^]]+\]: )?\S+$`)
)

// markdownLines empties the exempt lines: those of tables, headings with a link, lines of one word,
// link definitions, and blocks of code in any language but Go and the shell's. It removes the
// addresses of links, which do not count.
func markdownLines(lines []string) {
	inBlock, checked := false, false
	for i, s := range lines {
		switch {
		case fence.MatchString(s):
			inBlock, checked = !inBlock, codeFence.MatchString(s)
		case inBlock:
			if !checked {
				lines[i] = ""
			}
		case strings.HasPrefix(strings.TrimSpace(s), "|"), oneWord.MatchString(s),
			strings.HasPrefix(s, "#") && address.MatchString(s):
			lines[i] = ""
		default:
			lines[i] = address.ReplaceAllString(s, "]")
		}
	}
}

var (
	exemptComment = regexp.MustCompile(`^//([a-z]+:\S|line |\s*(\[[^]]+\]: )?\S+$)`)
	outputComment = regexp.MustCompile(`(?i)^//\s*(unordered )?output:`)

	punctuation = "(){}[],;:+ \t"
)

// goLines empties the exempt lines: those of generated files, directives, comments of one word,
// link definitions, the output of examples, and strings that fill their line or span several.
func goLines(file string, text []byte, lines []string) error {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments)
	if err != nil {
		return err
	}
	if ast.IsGenerated(parsed) {
		clear(lines)
		return nil
	}
	for _, group := range parsed.Comments {
		output := false
		for _, c := range group.List {
			output = output || outputComment.MatchString(c.Text)
			s := &lines[fset.PositionFor(c.Pos(), false).Line-1]
			if output || exemptComment.MatchString(c.Text) && strings.TrimSpace(*s) == c.Text {
				*s = ""
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			from, to := fset.PositionFor(lit.Pos(), false), fset.PositionFor(lit.End(), false)
			rest := strings.Replace(lines[from.Line-1], lit.Value, "", 1)
			if from.Line != to.Line || strings.Trim(rest, punctuation) == "" {
				clear(lines[from.Line-1 : to.Line])
			}
		}
		return true
	})
	return nil
}
