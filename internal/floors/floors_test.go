// Package floors checks the layout of the root package: which of its files may use which others.
package floors

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// A room is one or more files that belong together. A file uses what its own room declares and
// what the floors below declare.
type room struct {
	name  string
	files []string
}

// The floors, from the ground up. The engine and the API are one room each; the features do not use
// each other.
var floors = [][]room{
	{
		{"engine", []string{
			"clock.go", "timer.go", "kind.go", "engine.go",
			"shard.go", "wheel.go", "bucket.go", "delayqueue.go",
			"alarm.go", "bell_linux.go", "bell_other.go",
			"driver.go", "flush.go", "executor.go", "halt.go",
			"counters.go", "trace.go", "pause.go", "pause_on.go",
		}},
	},
	{
		{"schedules", []string{"schedule.go", "scheduleoptions.go"}},
		{"channels", []string{"channel.go"}},
		{"contexts", []string{"context.go"}},
		{"maps", []string{"map.go", "maptable.go"}},
		{"statistics", []string{"stats.go"}},
		{"observation", []string{"observe.go"}},
		{"hooks", []string{"inside.go"}},
		{"package time", []string{"packagetime.go"}},
	},
	{
		{"API", []string{"doc.go", "timingwheel.go", "options.go"}},
	},
}

// What a feature may use of the floor above: the type that its calls are methods of, and what it
// sets up in New. The engine may use nothing.
var allowed = map[string][]string{
	"schedule.go":    {"TimingWheel", "check", "engine", "missed"},
	"channel.go":     {"TimingWheel", "check"},
	"context.go":     {"TimingWheel", "check", "open"},
	"map.go":         {"TimingWheel", "check"},
	"stats.go":       {"TimingWheel", "check"},
	"observe.go":     {"Option", "config", "slow", "around"},
	"inside.go":      {"TimingWheel", "Option", "config", "around"},
	"packagetime.go": {"TimingWheel", "check", "AfterFunc"},
}

// A place is where a file belongs.
type place struct {
	floor int
	room  string
}

func places() map[string]place {
	all := map[string]place{}
	for floor, rooms := range floors {
		for _, r := range rooms {
			for _, file := range r.files {
				all[file] = place{floor, r.name}
			}
		}
	}
	return all
}

// TestFloors fails if a file of the root package uses what a higher floor or another feature
// declares. With -v it lists which files each file uses.
func TestFloors(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			names = append(names, filepath.Base(file))
		}
	}
	all := places()
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(all)),
		"each file of the root package that is no test has a line in the table of this test")

	used := map[string]map[string]bool{} // by file, the files that it uses
	excused := map[string]map[string]bool{}
	for _, u := range uses(t) {
		from, to := all[u.file], all[u.declaredIn]
		if used[u.file] == nil {
			used[u.file], excused[u.file] = map[string]bool{}, map[string]bool{}
		}
		used[u.file][u.declaredIn] = true
		if to.floor < from.floor || to == from {
			continue
		}
		if to.floor > from.floor && slices.Contains(allowed[u.file], u.name) {
			excused[u.file][u.name] = true
			continue
		}
		t.Errorf("%s: %s belongs to the %s and uses %s, which %s of the %s declares",
			u.at, u.file, from.room, u.name, u.declaredIn, to.room)
	}
	for file, names := range allowed {
		for _, name := range names {
			if !excused[file][name] {
				t.Errorf("the table allows %s to use %s, which it does not", file, name)
			}
		}
	}
	for _, rooms := range floors {
		for _, r := range rooms {
			for _, file := range r.files {
				others := strings.Join(slices.Sorted(maps.Keys(used[file])), " ")
				t.Logf("%-12s %-18s uses %s", r.name, file, others)
			}
		}
	}
}

// A use is where a file uses a name that another one declares.
type use struct {
	at               string // file and line
	file, declaredIn string
	name             string
}

// uses returns them for the platform and the build tags of this test.
func uses(t *testing.T) (all []use) {
	pkg, err := build.ImportDir(root, 0)
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		path := filepath.Join(root, name)
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	checked, err := config.Check("github.com/go-timingwheel/timingwheel", fset, files, info)
	require.NoError(t, err)
	for ident, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		at, declared := fset.Position(ident.Pos()), fset.Position(object.Pos())
		file, declaredIn := filepath.Base(at.Filename), filepath.Base(declared.Filename)
		if file != declaredIn {
			line := fmt.Sprintf("%s:%d", file, at.Line)
			all = append(all, use{line, file, declaredIn, ident.Name})
		}
	}
	slices.SortFunc(all, func(a, b use) int { return strings.Compare(a.at+a.name, b.at+b.name) })
	return all
}
