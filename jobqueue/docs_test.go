package jobqueue

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/snippets"
)

// TestDocuments type-checks the Go code of the documents, apart from what is there to be replaced,
// which needs other modules.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	checker, err := snippets.NewChecker("bytes", "context", "database/sql", "encoding/json",
		"errors", "log", "net/http", "testing", "testing/synctest", "time",
		"github.com/go-timingwheel/timingwheel/jobqueue",
		"github.com/go-timingwheel/timingwheel/jobqueue/sink/webhook")
	require.NoError(t, err)
	for file, preamble := range map[string]string{
		"README.md": `
			var (
				q              *jobqueue.Client
				ctx            context.Context
				body, one, two []byte
				monday         time.Time
				errBusy, errNoSuchUser error
			)
			type Order struct{ ID int }
			func expire(ctx context.Context, id string) error
			func send(ctx context.Context, body []byte) error
			func ship(ctx context.Context, o Order) error
			func resize(image []byte) error`,
		"sink/webhook/README.md": `
			var (
				q     *jobqueue.Client
				hooks *webhook.Poster
				ctx   context.Context
			)
			type customer struct{ URL string }
			func find(ctx context.Context, id string) (customer, error)`,
		"docs/migrating.md": `
			var (
				q   *jobqueue.Client
				db  *sql.DB
				ctx context.Context
				err error
				mux *http.ServeMux
			)
			type Order struct{ ID string }
			type Expire struct{ OrderID string }
			func cancelOrder(ctx context.Context, id string) error`,
	} {
		found, err := snippets.Read(file)
		require.NoError(t, err)
		checked := 0
		for _, s := range found {
			if s.Heading != "Before" || strings.Contains(s.Code, "db.") {
				require.NoError(t, checker.Check(s, preamble), "%s, line %d", file, s.Line)
				checked++
			}
		}
		require.NotZero(t, checked, file)
	}
}

// TestPromises: every test that README.md names is there.
func TestPromises(t *testing.T) {
	there := map[string]bool{}
	inSuite := regexp.MustCompile(`\{name: "(\w+)"`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(path, "storetest") {
			for _, m := range inSuite.FindAllSubmatch(source, -1) {
				there[string(m[1])] = true
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					there[f.Name.Name] = true
				}
			}
		}
		return nil
	}))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(readme), "## Promises")
	table, _, _ := strings.Cut(rest, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| (.+) \\| (`.+`) \\|$").FindAllStringSubmatch(table, -1)
	require.Len(t, rows, strings.Count(table, "\n| ")-1, "a promise without a test")
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			require.True(t, there[m[1]], "%s: there is no %s", row[1], m[1])
		}
	}
}
