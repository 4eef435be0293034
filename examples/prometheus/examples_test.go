// Package prometheus_test holds what a site copies to what rsswarden exports.
package prometheus_test

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// board is what is read of grafana.json.
type board struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	wardentest.NoError(t, json.Unmarshal(wardentest.ReadFile(t, "grafana.json"), &b))
	return b
}

// queries are all expressions of rules and board.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	b := readBoard(t)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title] += target.Expr + "\n"
		}
	}
	for _, v := range b.Templating.List {
		if v.Definition != "" {
			all["variable "+v.Name] = v.Definition
		}
	}
	all["rules.yml"] = string(wardentest.ReadFile(t, "rules.yml"))
	return all
}

var (
	nameRE     = regexp.MustCompile(`(?:^|[^:\w])(rsswarden_[a-z_]+)(?:\{([^}]*)\})?`)
	labelRE    = regexp.MustCompile(`(\w+)\s*(=~|!=|=|!~)\s*"([^"]*)"`)
	groupingRE = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// TestNamesAreExported: every query uses metrics, labels and values that are there.
func TestNamesAreExported(t *testing.T) {
	labels := map[string]bool{"job": true, "instance": true} // Prometheus's own
	for where, text := range queries(t) {
		found := nameRE.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for nothing of rsswarden's", where)
		}
		for _, f := range found {
			i := slices.IndexFunc(metrics.All, func(m *metrics.Metric) bool { return m.Name == f[1] })
			if i < 0 {
				t.Errorf("%s: there is no %s", where, f[1])
				continue
			}
			has := append(slices.Clone(metrics.Common), metrics.All[i].Labels...)
			for _, l := range has {
				labels[l.Name] = true
			}
			for _, m := range labelRE.FindAllStringSubmatch(f[2], -1) {
				j := slices.IndexFunc(has, func(l metrics.Label) bool { return l.Name == m[1] })
				if j < 0 {
					t.Errorf("%s: %s has no label %s", where, f[1], m[1])
					continue
				}
				for _, value := range strings.Split(m[3], "|") {
					if has[j].Values != nil && !slices.Contains(has[j].Values, value) {
						t.Errorf("%s: %s is never %q of %s", where, m[1], value, f[1])
					}
				}
			}
		}
	}
	for where, text := range queries(t) {
		for _, g := range groupingRE.FindAllStringSubmatch(text, -1) {
			for _, l := range strings.Split(g[1], ",") {
				if !labels[strings.TrimSpace(l)] {
					t.Errorf("%s: nothing has the label %s", where, l)
				}
			}
		}
	}
}

// TestEveryMetricIsShown: the board leaves out nothing but what is about rsswarden.
func TestEveryMetricIsShown(t *testing.T) {
	var all strings.Builder
	for where, text := range queries(t) {
		if strings.HasPrefix(where, "panel") {
			all.WriteString(text)
		}
	}
	about := []*metrics.Metric{&metrics.BuildInfo, &metrics.LastLook, &metrics.OOMUnheard, &metrics.SelfMemory, &metrics.SelfCPU}
	for _, m := range metrics.All {
		if !slices.Contains(about, m) && !m.Former && !strings.Contains(all.String(), m.Name) {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

// TestTheirOwnTools: Prometheus and Alertmanager take the files as they are, and the
// alerts fire when they should and not when not.
func TestTheirOwnTools(t *testing.T) {
	for _, c := range [][]string{
		{"promtool", "check", "rules", "rules.yml"},
		{"promtool", "check", "config", "prometheus.yml"},
		{"promtool", "test", "rules", "rules_test.yml"},
		{"amtool", "check-config", "alertmanager.yml"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			if _, err := exec.LookPath(c[0]); err != nil {
				t.Skipf("%v: apt-get install prometheus prometheus-alertmanager", err)
			}
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
