package metrics

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
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
	series map[*Metric][]series
	// keys has the labels of all series: the daemon puts 33,000 for 1,000 jobs at each scrape.
	// Those put one after the other with the same labels share them.
	keys []byte
	last series

	at    Place // of the last series
	place []byte
}

// series is one value. Its labels are keys[from:to].
type series struct {
	from, to int
	value    float64
}

// NewSet returns a set with nothing in it.
func NewSet() *Set { return &Set{series: map[*Metric][]series{}} }

// Reset empties the set, which keeps its memory for the values of another moment.
func (s *Set) Reset() {
	for m, all := range s.series {
		s.series[m] = all[:0]
	}
	s.keys, s.last = s.keys[:0], series{}
}

func (s *Set) key(v series) []byte { return s.keys[v.from:v.to] }

// Put sets the series of a metric at a place, with the values of m.Labels in their
// order, to v. It panics where their number is another: the table and its user disagree.
func (s *Set) Put(m *Metric, at Place, v float64, labels ...string) {
	from := len(s.keys)
	s.appendKey(m, at, labels)
	if bytes.Equal(s.keys[from:], s.key(s.last)) {
		s.keys = s.keys[:from]
	} else {
		s.last = series{from: from, to: len(s.keys)}
	}
	s.series[m] = append(s.series[m], series{s.last.from, s.last.to, v})
}

// Add is Put for values that add up: two processes of one role.
func (s *Set) Add(m *Metric, at Place, v float64, labels ...string) {
	s.Put(m, at, v, labels...)
	all := s.series[m]
	last := &all[len(all)-1]
	for _, was := range slices.Backward(all[:len(all)-1]) {
		if bytes.Equal(s.key(was), s.key(*last)) {
			last.value += was.value
			return
		}
	}
}

// appendKey appends the part between the name and the value to keys.
func (s *Set) appendKey(m *Metric, at Place, labels []string) {
	if len(labels) != len(m.Labels) {
		panic(fmt.Sprintf("internal error: %s has %d labels, not %d", m.Name, len(m.Labels), len(labels)))
	}
	if m.Whole {
		at.Step = ""
	}
	if at != s.at {
		s.at, s.place = at, s.place[:0]
		for i, v := range []string{at.JobID, at.Step, at.Node, at.Run} {
			s.place = appendLabel(s.place, 0, Common[i].Name, v)
		}
	}
	from := len(s.keys)
	if cap(s.keys)-from < 1<<10 {
		s.keys = slices.Grow(s.keys, from+1<<10) // append grows by a quarter, and copies more
	}
	s.keys = append(s.keys, s.place...)
	for i, v := range labels {
		s.keys = appendLabel(s.keys, from, m.Labels[i].Name, v)
	}
}

// appendLabel appends a label to those that begin at from; an empty one is left out.
func appendLabel(b []byte, from int, name, value string) []byte {
	if value == "" {
		return b
	}
	if len(b) > from {
		b = append(b, ',')
	}
	b = append(b, name...)
	b = append(b, `="`...)
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		value = inValue.Replace(strings.ToValidUTF8(value, "\uFFFD"))
	}
	b = append(b, value...)
	return append(b, '"')
}

// What the format wants escaped: in the value of a label, and in HELP.
var (
	inValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	inHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// Text returns what [Set.Encode] writes.
func (s *Set) Text() []byte {
	var b bytes.Buffer
	_ = s.Encode(&b) // it has no error
	return b.Bytes()
}

// encodeAt is how many bytes of text are written at a time: 33,000 series are 4 MB, which a
// buffer of that size would take from the kernel at each scrape.
const encodeAt = 16 << 10

// Encode writes the set in the text format: metrics by name and series by labels, so that
// what has not changed reads the same. There are no timestamps, which node_exporter
// does not take. The error is the writer's.
func (s *Set) Encode(to io.Writer) error {
	w := bufio.NewWriterSize(to, encodeAt)
	var number []byte
	for _, m := range slices.SortedFunc(maps.Keys(s.series), func(x, y *Metric) int { return cmp.Compare(x.Name, y.Name) }) {
		all := s.series[m]
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", m.Name, inHelp.Replace(m.Help), m.Name, m.Type)
		// Most are put in their order.
		if order := func(x, y series) int { return bytes.Compare(s.key(x), s.key(y)) }; !slices.IsSortedFunc(all, order) {
			slices.SortStableFunc(all, order)
		}
		for i, v := range all {
			if i+1 < len(all) && bytes.Equal(s.key(v), s.key(all[i+1])) {
				continue // it was put again
			}
			w.WriteString(m.Name)
			if v.from < v.to {
				w.WriteByte('{')
				w.Write(s.key(v))
				w.WriteByte('}')
			}
			w.WriteByte(' ')
			number = append(appendNumber(number[:0], v.value), '\n')
			if _, err := w.Write(number); err != nil { // the first stays
				return err
			}
		}
	}
	return w.Flush()
}

// appendNumber writes a value; bytes and counts without an exponent.
func appendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// Limits puts how near limits are: of several of one name, such as the levels of a cgroup
// above a job, the nearest.
func (s *Set) Limits(at Place, limits []event.Limit) {
	for k, l := range nearest(limits, level) {
		if k.of == "" {
			s.use(&OfJob, at, l)
		} else {
			s.use(&OfStep, at, l, k.of)
		}
	}
	for k, l := range nearest(limits, func(l *event.Limit) string { return string(l.Scope) }) {
		s.use(&Former, at, l, k.of)
	}
}

// level is the value of [ByLevel], empty for what is no part of a job.
func level(l *event.Limit) string {
	switch base := path.Base(l.Level); {
	case l.Scope == event.ScopeStep:
		return levelStep
	case l.Scope == event.ScopeCgroup && strings.HasPrefix(base, "task_"):
		return levelTask
	}
	return ""
}

// limitOf is a limit by its name, and what it counts.
type limitOf struct {
	name event.LimitName
	of   string
}

// nearest are the nearest of each name and what of says.
func nearest(limits []event.Limit, of func(*event.Limit) string) map[limitOf]*event.Limit {
	all := map[limitOf]*event.Limit{}
	for i := range limits {
		l := &limits[i]
		if k := (limitOf{l.Name, of(l)}); all[k] == nil || nearer(l, all[k]) {
			all[k] = l
		}
	}
	return all
}

// use puts one limit, by are the values of the labels beside limit.
func (s *Set) use(u *Use, at Place, l *event.Limit, by ...string) {
	name := append([]string{string(l.Name)}, by...)
	// A forecast of growth that may flatten before the limit has no end of its range.
	if l.ETA != nil && (l.ETAHigh != nil || l.Name == event.LimitTime) {
		s.Put(&u.TimeLeft, at, *l.ETA, name...)
	}
	if l.Name == event.LimitTime || l.Limit == 0 {
		return
	}
	s.Put(&u.Ratio, at, l.Ratio(), name...)
	if !slices.Contains(BySize.Values, string(l.Name)) {
		return
	}
	s.Put(&u.Used, at, float64(l.Used), name...)
	s.Put(&u.Limit, at, float64(l.Limit), name...)
	if l.Name == event.LimitCgroup {
		s.Put(&u.Unreclaimable, at, float64(l.Used), by...)
		s.Put(&u.Charged, at, float64(l.Charged), by...)
	}
}

// Peak puts the reading that came nearest to its limit, nil for none.
func (s *Set) Peak(at Place, l *event.Limit) {
	switch {
	case l == nil || l.Limit == 0:
	case level(l) == "":
		s.Put(&JobPeak, at, float64(l.Used), string(l.Name))
	default:
		s.Put(&StepPeak, at, float64(l.Used), string(l.Name), level(l))
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

// Actions puts what was done, by the ledger of the run. Actions of rules are there before
// anything was done: a rate is seen from the first value on.
func (s *Set) Actions(at Place, rules []event.Rule, saved *event.Saved) {
	for _, r := range rules {
		s.action(at, r.Action, saved)
	}
	for i := range saved.Actions {
		s.action(at, saved.Actions[i].Action, saved)
	}
	s.Put(&Actions, at, float64(saved.WorkerTrims), WorkerTrim, string(Done))
	s.Put(&PagesDropped, at, float64(saved.Dropped), WorkerTrim)
}

func (s *Set) action(at Place, a event.Action, saved *event.Saved) {
	sum := saved.Sum(a)
	counts := map[Result]int{Done: sum.Worked}
	switch a {
	case event.ActionRecycle:
		counts[Done] = saved.Recycled // between two epochs too
	case event.ActionWarn:
		counts[Done] = sum.Fired // it has no outcome
	}
	for why, n := range sum.Reasons {
		counts[resultOf(why)] += n
	}
	for _, r := range Outcomes {
		if r == Done || a != event.ActionWarn {
			s.Put(&Actions, at, float64(counts[r]), string(a), string(r))
		}
	}
	switch {
	case a.Row().Trims:
		s.Put(&PagesDropped, at, float64(sum.Freed), string(a))
	case a.Frees():
		s.Put(&MemoryFreed, at, float64(sum.Freed), string(a))
	}
}

// resultOf is the result of an action that did not work, by the reason: refused means not
// begun, or that its target ended first, as workers do with their epoch.
func resultOf(why event.Reason) Result {
	switch why {
	case event.ReasonDryRun, event.ReasonNoHelp, event.ReasonNoWorker, event.ReasonNothing, event.ReasonRecent, event.ReasonRecovered,
		event.ReasonUnsupported, event.ReasonPause, event.ReasonResend, event.ReasonDeferred, event.ReasonTask, event.ReasonNotCaught, event.ReasonNoTrainer, event.ReasonNoRank0,
		event.ReasonBusy, event.ReasonNoRequeue, event.ReasonRequeues, event.ReasonOccupied, event.ReasonNotWatched, event.ReasonVanished:
		return Refused
	}
	return Failed
}

// RunEnded returns how many runs have ended: as the text of an earlier set says, and one more.
func RunEnded(before []byte, at Place, o event.RunOutcome) *Set {
	s := NewSet()
	for _, v := range ByEnd.Values {
		s.Put(&Runs, at, 0, v)
	}
	line := regexp.MustCompile(`(?m)^` + Runs.Name + `\{[^}]*outcome="([a-z-]+)"\} ([0-9]+)$`)
	for _, m := range line.FindAllSubmatch(before, -1) {
		if n, err := strconv.ParseUint(string(m[2]), 10, 32); err == nil && slices.Contains(ByEnd.Values, string(m[1])) {
			s.Put(&Runs, at, float64(n), string(m[1]))
		}
	}
	s.Add(&Runs, at, 1, string(o))
	return s
}

// Self puts what rsswarden's own processes cost.
func (s *Set) Self(at Place, costs []event.Cost) {
	for i := range costs {
		s.Add(&SelfMemory, at, float64(costs[i].RSS))
		s.Add(&SelfCPU, at, costs[i].CPU)
	}
}
