// Package view has what was seen last of processes and limits, as values.
package view

import (
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// View is what was seen last: all of a full read, and the watched limit as a fast read has
// read it since. It is never changed once it is made.
type View struct {
	Now    time.Duration // by the watcher's clock, of the last read of either kind
	Sample rss.Sample    // of the last full read, with the roles of processes
	Limits []event.Limit
	Rates  []rss.Rate // how fast each of Limits grows
	// Watched is the index in Limits of the one that fast reads read, -1 for none, and From
	// what that stood at in the last full read; see [Growing].
	Watched int
	From    rss.Bytes
	Stopped bool // in the last full read all processes were stopped, and nothing has grown since
}

// Limit returns the reading of a limit, nil where there is none.
func (v *View) Limit(of event.LimitID) *event.Limit {
	if i := v.index(of); i >= 0 {
		return &v.Limits[i]
	}
	return nil
}

func (v *View) index(of event.LimitID) int {
	for i := range v.Limits {
		if v.Limits[i].ID() == of {
			return i
		}
	}
	return -1
}

// Binding is the limit that binds, nil where none does.
func (v *View) Binding() *event.Limit {
	for i := range v.Limits {
		if v.Limits[i].Binding {
			return &v.Limits[i]
		}
	}
	return nil
}

// Rate is how fast a limit grows, zero where it was not read.
func (v *View) Rate(l *event.Limit) (r rss.Rate) {
	if i := v.index(l.ID()); i >= 0 {
		r = v.Rates[i]
	}
	return r
}

// Latest is how fast a limit grows now, in bytes a second.
func (v *View) Latest(l *event.Limit) float64 {
	r := v.Rate(l)
	return r.Latest(v.Now)
}

// standstill is the time to the limit, at a rate that was seen and has faded
// since, from which on nothing grows.
const standstill = 6 * time.Hour

// TimeLeft is the time to a limit: as forecast, else at the fastest rate seen.
// It is 0 where nothing grows, and only there.
func (v *View) TimeLeft(l *event.Limit) time.Duration {
	seconds, r := 0.0, v.Rate(l)
	if rate := r.PerSecond(v.Now); rate > 0 {
		seconds = float64(l.Headroom()) / rate
	}
	if seconds > standstill.Seconds() {
		seconds = 0 // a rate fades and never ends
	}
	if l.ETA != nil {
		seconds = *l.ETA
	}
	// At the limit there is no time left, which is not the same as no growth.
	left := time.Duration(min(seconds, 1e9) * float64(time.Second))
	if l.Headroom() == 0 || seconds > 0 {
		left = max(left, 1)
	}
	return left
}

// Growing is the reading whose growth counts between two full reads. One
// counter bounds PSS and what is not shared only from above, while the upper
// bound of a cgroup's use is its whole charge, page cache included.
func Growing(l *event.Limit) rss.Bytes {
	switch l.Accounting {
	case event.AccountingPSS, event.AccountingNoShared:
		return l.UsedMax
	}
	return l.Used
}

// Next makes the view of a full read: what it has read of processes and limits, and from v
// how fast these have grown until now.
func (v *View) Next(now time.Duration, sample rss.Sample, limits []event.Limit) *View {
	n := &View{
		Now: now, Sample: sample, Limits: limits, Rates: make([]rss.Rate, len(limits)),
		Watched: -1, Stopped: allStopped(sample.Procs, sample.Extra),
	}
	for i := range limits {
		l := &limits[i]
		n.Rates[i] = v.Rate(l)
		n.Rates[i].Add(now, Growing(l))
		if l.Binding {
			n.Watched, n.From = i, Growing(l)
		}
	}
	return n
}

// Fast makes the view after a fast read has read the watched limit.
func (v *View) Fast(now time.Duration, read *event.Limit) *View {
	n := *v
	n.Now, n.Limits, n.Rates = now, slices.Clone(v.Limits), slices.Clone(v.Rates)
	l := &n.Limits[n.Watched]
	n.Rates[n.Watched].Add(now, Growing(read))
	n.Stopped = n.Stopped && Growing(read) == Growing(l)
	l.Used, l.UsedMax, l.Charged = read.Used, read.UsedMax, read.Charged
	return &n
}

// Forecast makes the view with what is forecast for its limits.
func (v *View) Forecast(limits []event.Limit) *View {
	n := *v
	n.Limits = limits
	return &n
}

// Skip makes the view after a time in which nothing was seen: how fast anything has grown
// in it is not known.
func (v *View) Skip() *View {
	n := *v
	n.Rates = slices.Clone(v.Rates)
	for i := range n.Rates {
		n.Rates[i].Skip()
	}
	return &n
}

// allStopped says that no process can grow before SIGCONT: job control,
// scontrol suspend, a debugger.
func allStopped(procs ...[]rss.Proc) bool {
	stopped := false
	for _, list := range procs {
		for i := range list {
			switch list[i].State {
			case 'T', 't':
				stopped = true
			case 'Z', 'X':
			default:
				return false
			}
		}
	}
	return stopped
}

// Lineage has the parent relations of the processes of a sample, in the order of
// proctree.Reader.Trees: by PID, but for the first.
type Lineage []rss.Proc

// Find returns the process that has a PID, nil for none.
func (l Lineage) Find(pid int) *rss.Proc {
	if len(l) == 0 {
		return nil
	}
	if l[0].ID.PID == pid {
		return &l[0]
	}
	i := 1 + sort.Search(len(l)-1, func(i int) bool { return l[i+1].ID.PID >= pid })
	if i == len(l) || l[i].ID.PID != pid {
		return nil
	}
	return &l[i]
}

// Up yields the process pid, its parent, and so on. The last is the first that is not
// in the sample: its process is nil.
func (l Lineage) Up(pid int) iter.Seq2[int, *rss.Proc] {
	return func(yield func(int, *rss.Proc) bool) {
		for range len(l) + 1 { // a torn reading could show a circle
			p := l.Find(pid)
			if !yield(pid, p) || p == nil {
				return
			}
			pid = p.Parent
		}
	}
}

// Below says whether the process pid descends from the other.
func (l Lineage) Below(pid, other int) bool {
	for up := range l.Up(pid) {
		if up == other && up != pid {
			return true
		}
	}
	return false
}

// Rank returns the index of the rank that a process belongs to, -1 for none, by the
// indices of the ranks' commands.
func (l Lineage) Rank(pid int, commands map[int]int) int {
	for up := range l.Up(pid) {
		if i, ok := commands[up]; ok {
			return i
		}
	}
	return -1
}

// News is what is to be reported, in this order: an [event.Found], an [event.LoaderSaid] or
// a [Cured], whose head the reporter fills in, a [Fault] or a [Line].
type News []any

// Fault is that a part of ours does not work. The command runs on.
type Fault struct {
	Part string
	Err  error
}

// Line is a line for people.
type Line struct {
	Kind string // lines of one kind are rationed; without a kind they are not
	Text string
	Warn bool // it is a warning; those with a kind are none
	// Once says that it is reported once for each pair of Once and Key.
	Once, Key string
}

// Cured is a cure and its words.
type Cured struct {
	event.Cure
	Text string
}

// Fault adds a fault, nil for none.
func (n *News) Fault(part string, err error) {
	if err != nil {
		*n = append(*n, Fault{part, err})
	}
}

// Add adds to what is to be told.
func (n *News) Add(more ...any) { *n = append(*n, more...) }
