package metrics

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Place is what a run or a step is known by: the values of [Common].
type Place struct {
	JobID, Step, Node, Run string
}

func (p Place) values() []string { return []string{p.JobID, p.Step, p.Node, p.Run} }

// Set holds the values of one moment. A series is there once, whatever is put into it:
// where a file or a scrape has one twice, Prometheus refuses all of it.
type Set struct {
	series map[*Metric]map[string]float64
}

// NewSet returns a set with nothing in it.
func NewSet() *Set { return &Set{series: map[*Metric]map[string]float64{}} }

// Put sets the series of a metric at a place, with the values of m.Labels in their
// order, to v. It panics where their number is another: the table and its user disagree.
func (s *Set) Put(m *Metric, at Place, v float64, labels ...string) {
	key := m.key(at, labels)
	if s.series[m] == nil {
		s.series[m] = map[string]float64{}
	}
	s.series[m][key] = v
}

// Add is Put for values that add up: two processes of one role.
func (s *Set) Add(m *Metric, at Place, v float64, labels ...string) {
	s.Put(m, at, v+s.series[m][m.key(at, labels)], labels...)
}

// key is what stands between the name and the value.
func (m *Metric) key(at Place, labels []string) string {
	if len(labels) != len(m.Labels) {
		panic(fmt.Sprintf("internal error: %s has %d labels, not %d", m.Name, len(m.Labels), len(labels)))
	}
	var b strings.Builder
	label := func(name, value string) {
		if value == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		b.WriteString(`="`)
		_, _ = inValue.WriteString(&b, strings.ToValidUTF8(value, "\uFFFD"))
		b.WriteByte('"')
	}
	for i, v := range at.values() {
		label(Common[i].Name, v)
	}
	for i, v := range labels {
		label(m.Labels[i].Name, v)
	}
	return b.String()
}

// What the format wants escaped: in the value of a label, and in HELP.
var (
	inValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	inHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// Text returns the set in the text format: metrics by name and series by labels, so that
// what has not changed reads the same. There are no timestamps, which node_exporter
// does not take.
func (s *Set) Text() []byte {
	var b bytes.Buffer
	byName := slices.SortedFunc(maps.Keys(s.series), func(x, y *Metric) int { return cmp.Compare(x.Name, y.Name) })
	for _, m := range byName {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, inHelp.Replace(m.Help), m.Name, m.Type)
		for _, labels := range slices.Sorted(maps.Keys(s.series[m])) {
			b.WriteString(m.Name)
			if labels != "" {
				b.WriteByte('{')
				b.WriteString(labels)
				b.WriteByte('}')
			}
			b.WriteByte(' ')
			b.WriteString(number(s.series[m][labels]))
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// number writes a value; bytes and counts without an exponent.
func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
