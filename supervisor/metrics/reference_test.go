package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
)

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
		if slices.Contains(OfRun, m) {
			by = append(by, "run")
		}
		if slices.Contains(OfNode, m) {
			by = append(by, "rsswardend")
		}
		rows = append(rows, []string{"`" + m.Name + "`", string(m.Type), m.Unit(), strings.Join(labels, ", "), strings.Join(by, ", "), m.Help})
	}
	p.Table([]string{"metric", "type", "unit", "labels", "told by", "what it is"}, rows)
	p.Section("Labels")
	rows = nil
	for _, l := range append(append([]Label{}, Common...), ByLimit, ByScope, ByRole, ByAction, ByOutcome, ByVersion) {
		rows = append(rows, []string{"`" + l.Name + "`", l.Help, strings.Join(l.Values, ", ")})
	}
	p.Text("The first four are those of every series, as far as they have a value; of rsswardend there is no run, and of what it tells of itself neither job, step nor node.")
	p.Table([]string{"label", "what it is", "values"}, rows)
	p.Check(t, "docs/reference/metrics.md")
}
