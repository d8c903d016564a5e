package jobqueueprom

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/snippets"
)

// This file compares README.md and dashboard.json with the collector: they must name only metrics
// that exist, and use them as their types allow. Prometheus itself reads the queries and plays the
// alerts.

// exported describes the metrics of a collector.
type exported struct {
	types  map[string]string   // by name
	labels map[string][]string // by name, without the client's, in order
}

func exportedMetrics(t *testing.T) exported {
	t.Helper()
	all := exported{types: map[string]string{}, labels: map[string][]string{}}
	for name, family := range scrape(t, collectorOf(everything)) {
		all.types[name] = strings.ToLower(family.GetType().String())
		for _, l := range family.GetMetric()[0].GetLabel() {
			if l.GetName() != "client" {
				all.labels[name] = append(all.labels[name], l.GetName())
			}
		}
		slices.Sort(all.labels[name])
	}
	return all
}

// series returns the name and type of the metric that a name in a query belongs to. A histogram has
// three names, all counters.
func (e exported) series(name string) (metric, kind string) {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if m, found := strings.CutSuffix(name, suffix); found && e.types[m] == "histogram" {
			return m, "counter"
		}
	}
	return name, e.types[name]
}

var (
	nameInQuery = regexp.MustCompile(`jobqueue_\w+`)
	withRate    = regexp.MustCompile(
		`\b(?:rate|increase)\((jobqueue_\w+)(?:\{[^}]*\})?\[[^\]]+\]\)`)
)

// requireQuery fails if a query does not take the rate of a counter, or takes that of a gauge.
func (e exported) requireQuery(t *testing.T, query string) {
	t.Helper()
	for _, m := range withRate.FindAllStringSubmatch(query, -1) {
		_, kind := e.series(m[1])
		require.Equal(t, "counter", kind, "%s: the rate of %s", query, m[1])
	}
	for _, name := range nameInQuery.FindAllString(withRate.ReplaceAllString(query, "x"), -1) {
		_, kind := e.series(name)
		require.Equal(t, "gauge", kind, "%s: %s without a rate", query, name)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestReadme(t *testing.T) {
	metrics, readme := exportedMetrics(t), read(t, "README.md")
	types := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(jobqueue_\\w+)` \\| (\\w+) \\| ([^|]*)\\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(readme, -1) {
		require.NotContains(t, types, m[1], "twice")
		types[m[1]] = m[2]
		labels := regexp.MustCompile(`\w+`).FindAllString(m[3], -1)
		slices.Sort(labels)
		require.Equal(t, strings.Join(metrics.labels[m[1]], " "), strings.Join(labels, " "), m[1])
	}
	require.Equal(t, metrics.types, types, "the table of metrics")
	for _, s := range states {
		require.Contains(t, readme, "`"+s.name+"`")
	}
	for _, o := range outcomes {
		require.Contains(t, readme, "`"+o.name+"`")
	}
	rules := regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(readme, -1)
	require.NotEmpty(t, rules)
	for _, m := range rules {
		require.Regexp(t, nameInQuery, m[1])
		metrics.requireQuery(t, m[1])
	}

	one := everything
	one.Namespaces = nil
	require.Len(t, flatten(scrape(t, collectorOf(one))), 77+1)
	require.Contains(t, readme, "A queue makes 77 series.")
}

func TestReadmeCompiles(t *testing.T) {
	checker, err := snippets.NewChecker("net/http",
		"github.com/go-timingwheel/timingwheel/jobqueue",
		"github.com/go-timingwheel/timingwheel/jobqueue/jobqueueprom",
		"github.com/prometheus/client_golang/prometheus",
		"github.com/prometheus/client_golang/prometheus/promhttp")
	require.NoError(t, err)
	found, err := snippets.Read("README.md")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, s := range found {
		require.NoError(t, checker.Check(s, ""), "the snippet at line %d", s.Line)
	}
}

// dashboard has the parts of dashboard.json that the tests read.
type dashboard struct {
	ID         any `json:"id"`
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID          int
		Title       string
		Description string
		Type        string
		GridPos     struct{ X, Y, W, H int }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(read(t, "dashboard.json")), &d))
	return d
}

func TestDashboard(t *testing.T) {
	const selector = `{job=~"$job",instance=~"$instance",client=~"$client"`
	const ofQueue = `,queue=~"$queue"`
	metrics, d := exportedMetrics(t), readDashboard(t)
	require.Nil(t, d.ID, "Grafana assigns it")
	for _, v := range d.Templating.List[1:] {
		require.Contains(t, metrics.types, nameInQuery.FindString(v.Definition), v.Name)
	}
	ids, shown := map[int]bool{}, map[string]bool{}
	var taken [200][24]bool
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				require.False(t, taken[y][x], "%s lies on another", p.Title)
				taken[y][x] = true
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, target.LegendFormat, p.Title)
			metrics.requireQuery(t, target.Expr)
			for _, at := range nameInQuery.FindAllStringIndex(target.Expr, -1) {
				metric, _ := metrics.series(target.Expr[at[0]:at[1]])
				shown[metric] = true
				chosen := selector
				if slices.Contains(metrics.labels[metric], "queue") {
					chosen += ofQueue
				}
				require.True(t, strings.HasPrefix(target.Expr[at[1]:], chosen),
					"%s: the variables select %s", target.Expr, metric)
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(metrics.types)),
		slices.Collect(maps.Keys(shown)), "each metric is on a panel")
}

// promtool runs promtool, which comes with Prometheus. If it is missing, the test is skipped, or
// fails if TIMINGWHEEL_REQUIRE_PROMTOOL is set (Debian: apt-get install prometheus).
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("TIMINGWHEEL_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("no promtool on PATH")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAlerts(t *testing.T) {
	rules := regexp.MustCompile("(?s)```yaml\n(groups:.*?)```").
		FindStringSubmatch(read(t, "README.md"))[1]
	scenario := read(t, filepath.Join("testdata", "alerts.yml"))
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		// Each alert is in the scenario, both firing and not.
		require.Regexp(t, `alertname: `+m[1]+`\n +exp_alerts: \[\]`, scenario)
		require.Regexp(t, `alertname: `+m[1]+`\n +exp_alerts:\n`, scenario)
	}
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	promtool(t, "check", "rules", file("rules.yml", rules))
	promtool(t, "test", "rules", file("alerts.yml", scenario))
}

func TestDashboardQueries(t *testing.T) {
	rules := []string{"groups:", "  - name: dashboard", "    rules:"}
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$client", ".*",
		"$queue", ".*", "$__rate_interval", "5m")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			rules = append(rules, "      - record: a:query",
				"        expr: '"+variables.Replace(target.Expr)+"'")
		}
	}
	require.Greater(t, len(rules), 30)
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(rules, "\n")), 0o600))
	promtool(t, "check", "rules", "--lint=none", file)
}
