package render

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// mostRows bounds the decisions that are listed in a page, mostRankRows the ranks.
	mostRows     = 400
	mostRankRows = 1024
	// mostCommand is how much of a command line a page shows: a script of its own is cut.
	mostCommand = 500
)

type pageList struct {
	Title string
	Items []string
}

// pageTable is the head of a table. What may have hundreds of rows scrolls by itself.
type pageTable struct {
	ID, Title string
	Tall      bool
	Sortable  bool
	Heads     []pageHead
}

// pageHead is the head of a column, Sort the kind of its values where it can be sorted by.
type pageHead struct {
	Name, Sort string
	Number     bool
}

// newPageTable reads heads: one that begins with "#" is of numbers, and one that ends
// with "*" can be sorted by. An empty one is left out.
func newPageTable(id, title string, heads ...string) pageTable {
	t := pageTable{ID: id, Title: title, Tall: slices.Contains([]string{"events", "processes", "ranks", "nodes"}, id)}
	for _, h := range heads {
		name, number := strings.CutPrefix(h, "#")
		name, sorts := strings.CutSuffix(name, "*")
		head := pageHead{Name: name, Number: number}
		if sorts {
			t.Sortable, head.Sort = true, []string{"t", "n"}[b2i(number)]
		}
		if name != "" {
			t.Heads = append(t.Heads, head)
		}
	}
	return t
}

// pageCell is a number in a table, Text "–" for none, which a phone leaves out.
type pageCell struct{ Class, Label, Text string }

// newPageCell makes one of a count, of bytes, or of seconds.
func newPageCell(class, label string, v any) pageCell {
	c := pageCell{class, label, "–"}
	switch v := v.(type) {
	case int:
		if v > 0 {
			c.Text = values.Digits(uint64(v))
		}
	case rss.Bytes:
		if v > 0 {
			c.Text = v.String()
		}
	case float64:
		if v > 0 {
			c.Text = values.Seconds(v)
		}
	}
	if c.Text == "–" {
		c.Class += " h"
	}
	return c
}

// JoinedLimits are the limits, those of ranks that led in turn as one, the fullest first.
func (p *page) JoinedLimits() []analysis.Limit {
	list := slices.Clone(analysis.JoinLimits(p.Limits))
	slices.SortStableFunc(list, func(a, b analysis.Limit) int { return cmp.Compare(b.Ratio(), a.Ratio()) })
	return list
}

// Explained says why it ended, where it did not end well.
func (p *page) Explained() string {
	switch p.Brief.Outcome {
	case event.RunOK, event.RunKept, event.RunTight, event.RunOver:
		return ""
	}
	return p.Verdict
}

type pageDeed struct {
	event.ActionSum
	Name, Why string
}

// Deeds are the actions, with the trims that workers made by themselves.
func (p *page) Deeds() (all []pageDeed) {
	s := &p.Brief.Saved
	if s.WorkerTrims > 0 {
		all = append(all, pageDeed{event.ActionSum{Worked: s.WorkerTrims}, "trim by workers", fmt.Sprintf("%v of pages dropped; they stay in the page cache", s.Dropped)})
	}
	for i := range s.Actions {
		all = append(all, pageDeed{s.Actions[i], string(s.Actions[i].Action), reasons(&s.Actions[i])})
	}
	return all
}

// RunName is what the timeline calls a run.
func (p *page) RunName(id string) string {
	for i := range p.T.Runs {
		if p.T.Runs[i].ID == id || slices.Contains(p.T.Runs[i].Also, id) {
			return p.T.Runs[i].Name
		}
	}
	return id
}

// TogetherNotes is what a job of several ranks, nodes or attempts came to.
func (p *page) TogetherNotes() []string { return togetherNotes(p.Result, p.at.start.Location()) }

// ShownRanks are the ranks: those that failed first where there are too many.
func (p *page) ShownRanks() []analysis.Rank {
	list := slices.Clone(p.Ranks)
	if len(list) > mostRankRows {
		slices.SortStableFunc(list, func(a, b analysis.Rank) int {
			return cmp.Or(b2i(b.Failed())-b2i(a.Failed()), cmp.Compare(b.Most(), a.Most()))
		})
	}
	return list[:min(len(list), mostRankRows)]
}

func (p *page) RanksLeftOut() int { return max(len(p.Ranks)-mostRankRows, 0) }

type pageFinding struct {
	Name, Rest string
	*analysis.Diagnosis
}

func (p *page) Found() (all []pageFinding) {
	for i := range p.Findings {
		name, rest, _ := strings.Cut(findingTitle(&p.Findings[i], len(p.Runs)), ", ")
		all = append(all, pageFinding{name, rest, &p.Findings[i]})
	}
	return all
}

// Changed is what was changed before it could go wrong.
func (p *page) Changed() (all []string) {
	for i := range p.Cures {
		c := &p.Cures[i]
		all = append(all, fmt.Sprintf("%s, %s: %s", p.Clock(c.First), c.Remedy, cureText(c)))
	}
	return all
}

type pageEvent struct {
	Of *analysis.RunSeries
	*analysis.Mark
	Run          int
	Text, Result string
}

// Events are the first and the last events of each run.
func (p *page) Events() (all []pageEvent) {
	for i := range p.T.Runs {
		s := &p.T.Runs[i]
		half := p.mostEvents() / 2
		for k := range s.Marks {
			if k < half || k >= len(s.Marks)-half {
				m := &s.Marks[k]
				all = append(all, pageEvent{s, m, i, chart.Happened(m), chart.CameOf(m)})
			}
		}
	}
	return all
}

// mostEvents is how many events of a run are listed.
func (p *page) mostEvents() int { return max(20, mostRows/len(p.T.Runs)) }

// EventsLeftOut counts the events between them.
func (p *page) EventsLeftOut() (n int) {
	for i := range p.T.Runs {
		n += p.T.Runs[i].MarksLeftOut + max(len(p.T.Runs[i].Marks)-p.mostEvents()/2*2, 0)
	}
	return n
}

type pageProcess struct {
	Of *analysis.RunSeries
	*analysis.Trace
	Run, Index int
	Name, Role string
	Spark      template.HTML
}

// Processes are the largest processes of each run.
func (p *page) Processes() (all []pageProcess) {
	for i := range p.T.Runs {
		s := &p.T.Runs[i]
		for k := range s.Procs {
			p := &s.Procs[k]
			name := values.Plain(p.Proc.Comm)
			if strings.TrimSpace(name) == "" {
				name = "(no name)"
			}
			course := make([]float64, len(p.RSS))
			for n, v := range p.RSS {
				course[n] = float64(v)
			}
			all = append(all, pageProcess{s, p, i, k, name, string(analysis.LayerOf(&p.Proc)), chart.Spark(course, float64(p.Peak/rss.KiB))})
		}
	}
	return all
}

func (p *page) ProcessesLeftOut() (n int) {
	for i := range p.T.Runs {
		n += p.T.Runs[i].ProcsLeftOut
	}
	return n
}

func runPlace(r *analysis.Run) string {
	if r.Step == "" {
		return values.Plain(r.Node)
	}
	return place(r.Node, r.Step, r.Task, r.Restart)
}

func howEnded(r *analysis.Run) string {
	text := string(r.Cause)
	if how := exitWords(r.Code, r.Signal); how != "" {
		text += ", " + how
	}
	if r.JournalOnly {
		text += "; journal only"
	}
	for _, d := range r.Damage {
		text += "; " + d
	}
	return text
}

// reasons tells why actions did not work, the most frequent first.
func reasons(a *event.ActionSum) string {
	list := make([]event.Reason, 0, len(a.Reasons))
	for r := range a.Reasons {
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y event.Reason) int {
		if a.Reasons[x] != a.Reasons[y] {
			return a.Reasons[y] - a.Reasons[x]
		}
		return strings.Compare(string(x), string(y))
	})
	var parts []string
	for _, r := range list {
		parts = append(parts, fmt.Sprintf("%s (%d)", a.Action.Why(r), a.Reasons[r]))
	}
	return strings.Join(parts, ", ")
}
