// Package snippets type-checks the Go code that Markdown files show, so that what a reader
// copies compiles. Tests of this module and of the ones beside it use it.
package snippets

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
)

// A Snippet is a fenced block of Go.
type Snippet struct {
	File    string
	Line    int    // of the first line of code
	Heading string // the heading above it, without the number signs
	Code    string
}

// Read returns the Go snippets of a Markdown file.
func Read(file string) ([]Snippet, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found []Snippet
	heading, fence := "", "" // fence is the opening of the block that the line is in
	for i, line := range strings.SplitAfter(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			if fence != "" {
				fence = ""
				break
			}
			if fence = trimmed; fence == "```go" {
				found = append(found, Snippet{File: file, Line: i + 2, Heading: heading})
			}
		case fence == "```go":
			found[len(found)-1].Code += line
		case fence == "" && strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return found, nil
}

// A Checker type-checks snippets against one set of packages.
type Checker struct {
	imports  []string // what statements may use without importing it
	importer types.Importer
	fset     *token.FileSet
}

// NewChecker returns a Checker whose snippets may use the packages of these import paths, as `go
// list` finds them from the current folder. A snippet need not import them.
func NewChecker(imports ...string) (*Checker, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}")
	list.Args = append(list.Args, imports...)
	var complaint bytes.Buffer
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, complaint.Bytes())
	}
	exports := map[string]string{} // the files with the compiler's export data, by import path
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, errors.New("package " + path + " is not among those of the Checker")
		}
		return os.Open(file)
	}
	return &Checker{imports, importer.ForCompiler(fset, "gc", lookup), fset}, nil
}

// Check type-checks a snippet together with a preamble, which declares what the text around the
// snippet refers to. The snippet is a list of declarations or of statements, after imports if it
// has any. A reader may add statements, so the variables of its outermost block need not be used.
func (c *Checker) Check(s Snippet, preamble string) error {
	imports, body := cutImports(s.Code)
	present := map[string]bool{}
	head, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+imports, parser.ImportsOnly)
	if err != nil {
		return fmt.Errorf("%s:%d: %w", s.File, s.Line, err)
	}
	for _, spec := range head.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		present[path] = true
	}
	var usual strings.Builder
	for _, path := range c.imports {
		if !present[path] {
			fmt.Fprintf(&usual, "import %q\n", path)
		}
	}
	around, err := parser.ParseFile(c.fset, "preamble", "package p\n"+c.allImports()+preamble,
		parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(line int) string { // makes errors name the line of the Markdown file
		return fmt.Sprintf("\n//line %s:%d\n", path.Base(s.File), line)
	}
	start := "package p\n" + usual.String() + at(s.Line) + imports
	body = at(s.Line+strings.Count(imports, "\n")) + body
	file, err := parser.ParseFile(c.fset, s.File, start+body, parser.SkipObjectResolution)
	if err != nil {
		file, err = parser.ParseFile(c.fset, s.File, start+"\nfunc _() {"+body+"\n}\n",
			parser.SkipObjectResolution)
	}
	if err != nil {
		return err
	}
	excused := map[token.Pos]bool{} // what may be unused
	for _, spec := range around.Imports {
		excused[spec.Pos()] = true
	}
	for _, spec := range file.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); !present[path] {
			excused[spec.Pos()] = true
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "_" {
			for _, statement := range f.Body.List {
				if define, ok := statement.(*ast.AssignStmt); ok {
					for _, name := range define.Lhs {
						excused[name.Pos()] = true
					}
				}
			}
		}
	}
	var faults []error
	conf := types.Config{Importer: c.importer, Error: func(err error) {
		if e, ok := err.(types.Error); !ok || !e.Soft || !excused[e.Pos] {
			faults = append(faults, err)
		}
	}}
	conf.Check("p", c.fset, []*ast.File{around, file}, nil) // what it returns is the first of these
	return errors.Join(faults...)
}

func (c *Checker) allImports() string {
	var b strings.Builder
	for _, path := range c.imports {
		fmt.Fprintf(&b, "import %q\n", path)
	}
	return b.String()
}

// cutImports splits off the import declarations at the top.
func cutImports(code string) (imports, body string) {
	// An error is about what follows the imports, and Check reports it.
	file, _ := parser.ParseFile(token.NewFileSet(), "", "package p;"+code, parser.ImportsOnly)
	if file == nil || len(file.Decls) == 0 {
		return "", code
	}
	end := int(file.Decls[len(file.Decls)-1].End()) - 1 - len("package p;")
	return code[:end], code[end:]
}
