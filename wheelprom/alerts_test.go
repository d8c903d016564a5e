package wheelprom

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file has Prometheus itself read the queries of README.md and dashboard.json, and play the
// alerts.

// promtool runs promtool, which comes with Prometheus. If it is missing, the test is skipped, or
// fails if TIMINGWHEEL_REQUIRE_PROMTOOL is set (Debian: apt-get install prometheus).
func promtool(t *testing.T, args ...string) string {
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
	return string(out)
}

func TestAlerts(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(groups:.*?)```").FindSubmatch(readme)
	require.NotNil(t, block)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules.yml"), block[1], 0o600))
	scenario, err := os.ReadFile(filepath.Join("testdata", "alerts.yml"))
	require.NoError(t, err)
	file := filepath.Join(folder, "alerts.yml")
	require.NoError(t, os.WriteFile(file, scenario, 0o600))
	promtool(t, "check", "rules", filepath.Join(folder, "rules.yml"))
	promtool(t, "test", "rules", file)

	// Each alert is in the scenario, both firing and not.
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(block[1], -1) {
		name := regexp.QuoteMeta(string(m[1]))
		require.Regexp(t, `alertname: `+name+`\n +exp_alerts: \[\]`, string(scenario))
		require.Regexp(t, `alertname: `+name+`\n +exp_alerts:\n`, string(scenario))
	}
}

func TestDashboardQueries(t *testing.T) {
	rules := []string{"groups:", "  - name: dashboard", "    rules:"}
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$wheel", ".*",
		"$__rate_interval", "5m")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			rules = append(rules, "      - record: a:query",
				"        expr: '"+variables.Replace(target.Expr)+"'")
			// Only single numbers and the heatmap merge instances.
			if p.Type == "timeseries" {
				require.NotRegexp(t, `\b(sum|max) ?\(`, target.Expr, p.Title)
				require.Equal(t, strings.Count(target.Expr, "by ("), strings.Count(target.Expr,
					"job, instance, wheel"), "%s merges instances", p.Title)
				require.Contains(t, target.Legend, "{{instance}} {{wheel}}", p.Title)
			}
		}
	}
	require.Greater(t, len(rules), 30)
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(rules, "\n")), 0o600))
	promtool(t, "check", "rules", "--lint=none", file)
}
