package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestTable holds the names to Prometheus's rules.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^rsswarden_[a-z]+(_[a-z]+)*$`)
	for _, m := range All {
		if !name.MatchString(m.Name) || seen[m.Name] {
			t.Errorf("%s is no name, or there twice", m.Name)
		}
		seen[m.Name] = true
		if counter := strings.HasSuffix(m.Name, "_total"); counter != (m.Type == Counter) {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
		if m.Help == "" || !strings.HasSuffix(m.Help, ".") || strings.ContainsAny(m.Help, "\n|") {
			t.Errorf("%s has the help %q", m.Name, m.Help)
		}
		labels := map[string]bool{}
		for _, l := range slices.Concat(Common, m.Labels) {
			if labels[l.Name] {
				t.Errorf("%s has the label %s twice", m.Name, l.Name)
			}
			labels[l.Name] = true
			// Prometheus puts its own there, or sites do.
			if slices.Contains([]string{"job", "instance", "cluster", "pid", "user", "uid", "command", "le", "quantile"}, l.Name) {
				t.Errorf("%s has the label %s", m.Name, l.Name)
			}
		}
	}
	for _, l := range event.Limits {
		if l.Counts() == slices.Contains(BySize.Values, string(l)) && l != event.LimitTime {
			t.Errorf("%s is a size or a number, not both: %q", l, BySize.Values)
		}
	}
}

// TestClosedLists: every value of a label is in its list, and every metric is written.
func TestClosedLists(t *testing.T) {
	families := parse(t, full().Text())
	for _, m := range All {
		f := families[m.Name]
		if f == nil {
			t.Errorf("%s is never set", m.Name)
			continue
		}
		if f.GetHelp() != m.Help {
			t.Errorf("%s reads as %q", m.Name, f.GetHelp())
		}
		for _, series := range f.Metric {
			for _, pair := range series.Label {
				i := slices.IndexFunc(m.Labels, func(l Label) bool { return l.Name == pair.GetName() })
				if i >= 0 && m.Labels[i].Values != nil && !slices.Contains(m.Labels[i].Values, pair.GetValue()) {
					t.Errorf("%s has %s=%q", m.Name, pair.GetName(), pair.GetValue())
				}
			}
		}
	}
}

// ofNode are those that rsswardend tells of all jobs of a node; a run tells of itself all but
// OOMUnheard.
var ofNode = append(slices.Clone(near), &Processes, &MemoryRSS, &OOMKills, &OOMUnheard, &LastLook, &BuildInfo)

// TestReference: the tables of docs/reference are this package's.
func TestReference(t *testing.T) {
	p := reference.New("Metrics", "What a run writes by `--textfile` ([metrics of a run](../metrics.md)), and what\n"+
		"`rsswardend` tells ([all jobs of a node](../daemon.md)), with the same names.")
	var rows [][]string
	for _, m := range All {
		var labels, by []string
		for _, l := range m.Labels {
			labels = append(labels, l.Name)
		}
		help := m.Help
		if m.Former {
			name := strings.TrimPrefix(m.Name, "rsswarden_")
			help = fmt.Sprintf("Former name of `rsswarden_job_%s` and `rsswarden_step_%s`, for one release: a sum over it counts a job and its steps.", name, name)
		}
		if m != &OOMUnheard {
			by = append(by, "run")
		}
		if slices.Contains(ofNode, m) {
			by = append(by, "rsswardend")
		}
		rows = append(rows, []string{"`" + m.Name + "`", string(m.Type), m.Unit(), strings.Join(labels, ", "), strings.Join(by, ", "), help})
	}
	p.Table([]string{"metric", "type", "unit", "labels", "told by", "what it is"}, rows)
	p.Section("Labels")
	rows = nil
	for _, l := range append(append([]Label{}, Common...), ByLimit, ByLevel, ByScope, ByRole, ByAction, ByOutcome, ByEnd, ByVersion) {
		rows = append(rows, []string{"`" + l.Name + "`", l.Help, strings.Join(l.Values, ", ")})
	}
	p.Text("The first four are those of every series, as far as they have a value. Series of rsswardend have no run, and those about itself neither job, step nor node; " +
		"those of a whole job (`rsswarden_job_…`) have no step. A run of a job exports the job, the run of each step its step.")
	p.Table([]string{"label", "what it is", "values"}, rows)
	p.Check(t, "docs/reference/metrics.md")
}
