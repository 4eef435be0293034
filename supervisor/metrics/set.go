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

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Place is what a run or a step is known by: the values of [Common].
type Place struct {
	JobID, Step, Node, Run string
}

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
	for i, v := range []string{at.JobID, at.Step, at.Node, at.Run} {
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

// Limits sets use and size of limits: of several of one name and scope, such as the levels
// of a cgroup, the one that is nearest.
func (s *Set) Limits(at Place, limits []event.Limit) {
	type key struct {
		name  event.LimitName
		scope event.Scope
	}
	nearest := map[key]*event.Limit{}
	for i := range limits {
		l := &limits[i]
		if k := (key{l.Name, l.Scope}); nearest[k] == nil || nearer(l, nearest[k]) {
			nearest[k] = l
		}
	}
	for k, l := range nearest {
		name, scope := string(k.name), string(k.scope)
		if l.ETA != nil {
			s.Put(&TimeToLimit, at, *l.ETA, name, scope)
		}
		if k.name == event.LimitTime || l.Limit == 0 {
			continue
		}
		s.Put(&LimitRatio, at, l.Ratio(), name, scope)
		if !slices.Contains(BySize.Values, name) {
			continue
		}
		s.Put(&MemoryUsed, at, float64(l.Used), name, scope)
		s.Put(&MemoryLimit, at, float64(l.Limit), name, scope)
		if k.name == event.LimitCgroup {
			s.Put(&MemoryUnreclaimable, at, float64(l.Used), scope)
			s.Put(&MemoryCharged, at, float64(l.Charged), scope)
		}
	}
}

// nearer says that a is fuller than b, or as full and met sooner.
func nearer(a, b *event.Limit) bool {
	if a.Ratio() != b.Ratio() {
		return a.Ratio() > b.Ratio()
	}
	return a.ETA != nil && (b.ETA == nil || *a.ETA < *b.ETA)
}

// Processes puts how many processes there are of each role, and their RSS.
func (s *Set) Processes(at Place, procs []rss.Proc) {
	for i := range procs {
		p := &procs[i]
		if p.State == 'Z' || p.State == 'X' {
			continue
		}
		role := string(p.Role)
		if role == "" {
			role = string(rss.RoleOther)
		}
		s.Add(&Processes, at, 1, role)
		s.Add(&MemoryRSS, at, float64(p.RSS), role)
	}
}

// Acted counts actions and what they freed. The zero value is ready.
type Acted struct {
	counts map[[2]string]uint64
	freed  map[string]rss.Bytes
}

// Expect exports an action from now on, before anything was done: a rate needs a first
// value.
func (a *Acted) Expect(action event.Action) {
	if a.counts == nil {
		a.counts, a.freed = map[[2]string]uint64{}, map[string]rss.Bytes{}
	}
	if action == event.ActionWarn {
		a.counts[[2]string{string(action), string(Done)}] += 0 // it cannot fail
		return
	}
	if action.Frees() {
		a.freed[string(action)] += 0
	}
	for _, r := range Outcomes {
		a.counts[[2]string{string(action), string(r)}] += 0
	}
}

// Count takes one outcome in.
func (a *Acted) Count(action event.Action, r Result, freed rss.Bytes) {
	a.Expect(action)
	a.counts[[2]string{string(action), string(r)}]++
	if _, ok := a.freed[string(action)]; ok {
		a.freed[string(action)] += freed
	}
}

// Actions puts the counts of actions.
func (s *Set) Actions(at Place, a *Acted) {
	for k, n := range a.counts {
		s.Put(&Actions, at, float64(n), k[0], k[1])
	}
	for action, freed := range a.freed {
		s.Put(&MemoryFreed, at, float64(freed), action)
	}
}

// ResultOf says which result an outcome is: refused means not begun, or that its target
// ended first, as workers do with their epoch.
func ResultOf(o *event.Outcome) Result {
	switch o.Reason {
	case event.ReasonDryRun, event.ReasonNoHelp, event.ReasonNoWorker, event.ReasonNothing, event.ReasonRecent, event.ReasonRecovered,
		event.ReasonUnsupported, event.ReasonPause, event.ReasonResend, event.ReasonDeferred, event.ReasonNotCaught, event.ReasonNoTrainer, event.ReasonNoRank0,
		event.ReasonBusy, event.ReasonNoRequeue, event.ReasonRequeues, event.ReasonOccupied, event.ReasonNotWatched, event.ReasonVanished:
		return Refused
	}
	if o.OK {
		return Done
	}
	return Failed
}
