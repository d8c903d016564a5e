package wheelprom

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/snippets"
)

// This file compares README.md and dashboard.json with the collector. They must name only metrics
// that exist, and use them as their types allow.

// exported describes the metrics of a collector with all options.
type exported struct {
	types  map[string]string   // by name
	labels map[string][]string // by name, without the wheel's
}

func exportedMetrics(t *testing.T) exported {
	t.Helper()
	tw := timingwheel.New()
	tw.AfterFunc(time.Hour, func() {})
	t.Cleanup(tw.Stop)
	c := NewCollector(tw, WithShards())
	all := exported{types: map[string]string{}, labels: map[string][]string{}}
	for _, family := range gather(t, c) {
		all.types[family.GetName()] = strings.ToLower(family.GetType().String())
		for _, l := range family.GetMetric()[0].GetLabel() {
			if l.GetName() != "wheel" {
				all.labels[family.GetName()] = append(all.labels[family.GetName()], l.GetName())
			}
		}
	}
	require.ElementsMatch(t, describedNames(c), slices.Collect(maps.Keys(all.types)),
		"what is described and what is collected")
	return all
}

func gather(t *testing.T, c prometheus.Collector) []*dto.MetricFamily {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
	return families
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func describedNames(c prometheus.Collector) (names []string) {
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	for desc := range ch {
		names = append(names, fqName.FindStringSubmatch(desc.String())[1])
	}
	return names
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
	nameInQuery = regexp.MustCompile(`timingwheel_\w+`)
	withRate    = regexp.MustCompile(
		`\b(?:rate|increase)\((timingwheel_\w+)(?:\{[^}]*\})?\[[^\]]+\]\)`)
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
	for _, pair := range []string{"()", "{}", "[]"} {
		require.Equal(t, strings.Count(query, pair[:1]), strings.Count(query, pair[1:]), "%s: %s",
			query, pair)
	}
}

func TestReadme(t *testing.T) {
	metrics := exportedMetrics(t)
	file, err := os.ReadFile("README.md")
	require.NoError(t, err)
	readme := string(file)

	types := map[string]string{}
	row := regexp.MustCompile(
		"(?m)^\\| `(timingwheel_\\w+)` \\| (\\w+) \\| (?:`(\\w+)` )?\\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(readme, -1) {
		name, kind, label := m[1], m[2], m[3]
		require.NotContains(t, types, name, "twice")
		types[name] = kind
		require.Equal(t, strings.Join(metrics.labels[name], ""), label, name)
	}
	require.Equal(t, metrics.types, types, "the table of metrics")

	for _, name := range nameInQuery.FindAllString(readme, -1) {
		metric, _ := metrics.series(name)
		require.Contains(t, metrics.types, metric)
	}
	rules := regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(readme, -1)
	require.NotEmpty(t, rules)
	for _, m := range rules {
		require.Regexp(t, nameInQuery, m[1])
		metrics.requireQuery(t, m[1])
	}
}

// TestReadmeCompiles type-checks the Go snippets, except those that need packages of OpenTelemetry.
func TestReadmeCompiles(t *testing.T) {
	checker, err := snippets.NewChecker("net/http", "github.com/go-timingwheel/timingwheel",
		"github.com/go-timingwheel/timingwheel/wheelprom",
		"github.com/prometheus/client_golang/prometheus",
		"github.com/prometheus/client_golang/prometheus/promhttp")
	require.NoError(t, err)
	found, err := snippets.Read("README.md")
	require.NoError(t, err)
	checked := 0
	for _, s := range found {
		if s.Heading == "OpenTelemetry" {
			continue
		}
		require.NoError(t, checker.Check(s, ""), "the snippet at line %d", s.Line)
		checked++
	}
	require.NotZero(t, checked)
}

// TestReadmeCount checks the number of series that the README gives.
func TestReadmeCount(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	tw.AfterFunc(time.Hour, func() {}) // on the third level
	file, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Len(t, flatten(gather(t, NewCollector(tw))), 83)
	require.Contains(t, string(file), "With three levels that makes 83 series for each wheel.")
}

// dashboard has the parts of dashboard.json that the tests read.
type dashboard struct {
	ID            any    `json:"id"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
			Query      any    `json:"query"`
			Datasource *source
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Datasource  *source
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID      string `json:"refId"`
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
		Datasource *source
	} `json:"targets"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	file, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(file, &d))
	return d
}

// selector follows each metric in a query of the dashboard.
const selector = `{job=~"$job",instance=~"$instance",wheel=~"$wheel"}`

func TestDashboard(t *testing.T) {
	metrics := exportedMetrics(t)
	d := readDashboard(t)
	require.Nil(t, d.ID, "Grafana assigns it")
	require.NotEmpty(t, d.UID)
	require.NotEmpty(t, d.Title)
	require.GreaterOrEqual(t, d.SchemaVersion, 36, "data sources have a type and a uid since then")

	// The variables. The data source is the first, because the others use it.
	chosen := &source{"prometheus", "${datasource}"}
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	require.Equal(t, "prometheus", d.Templating.List[0].Query)
	variables := map[string]bool{"datasource": true, "__rate_interval": true}
	requireVariables := func(query string) {
		for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(query, -1) {
			require.True(t, variables[m[1]], "%s: $%s", query, m[1])
		}
	}
	for _, v := range d.Templating.List[1:] {
		requireVariables(v.Definition) // only earlier ones
		variables[v.Name] = true
		require.Equal(t, chosen, v.Datasource, v.Name)
		require.Equal(t, v.Definition, v.Query.(map[string]any)["query"], v.Name)
		for _, name := range nameInQuery.FindAllString(v.Definition, -1) {
			require.Contains(t, metrics.types, name)
		}
	}
	require.True(t, variables["wheel"])

	ids := map[int]string{}
	var taken [200][24]string
	shown := map[string]bool{}
	for _, p := range d.Panels {
		require.NotContains(t, ids, p.ID, "%s and %s have one id", p.Title, ids[p.ID])
		ids[p.ID] = p.Title
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				require.Empty(t, taken[y][x], "%s lies on another", p.Title)
				taken[y][x] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.Equal(t, chosen, p.Datasource, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.Equal(t, chosen, target.Datasource, p.Title)
			require.NotEmpty(t, target.Legend, p.Title)
			require.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
			requireVariables(target.Expr)
			metrics.requireQuery(t, target.Expr)
			names := nameInQuery.FindAllString(target.Expr, -1)
			require.NotEmpty(t, names, target.Expr)
			require.Equal(t, len(names), strings.Count(target.Expr, selector),
				"%s: the variables select each of them", target.Expr)
			for _, name := range names {
				metric, _ := metrics.series(name)
				shown[metric] = true
			}
		}
	}
	for name := range metrics.types {
		if !strings.HasPrefix(name, "timingwheel_shard_") &&
			name != "timingwheel_level_tick_seconds" {
			require.True(t, shown[name], "%s is on no panel", name)
		}
	}
}
