package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Order is a command for one leader.
type Order struct {
	ID        int
	Job, Node string
	Leader    int // its PID
	Command   control.Command
	// Rank is the number of the rank that was chosen as a whole, -1 where a process was, or
	// where another rank has that number. It stands for PIDs that cannot be passed on.
	Rank int
}

// order is an order with what people read of it.
type order struct {
	Order
	question string // without "?"
	name     string // "recycle of 4242 on n1"
	since    time.Time
	until    time.Time        // zero while it is going on
	results  []control.Result // of processes
	refused  string           // why nothing was done at all
}

// kept is how long an order that has ended is shown.
const kept = time.Minute

// Newest is the order that [Do] means.
func (m *Model) Newest() Order { return m.doing[0].Order }

// ask puts the question whether the row with the mark, or that of the pane, is to
// be recycled, trimmed or to write a checkpoint.
func (m Model) ask(k Key) Model {
	r := m.marked()
	if m.pane != nil {
		r = m.pane.row
	}
	if r == nil {
		m.message = "there is nothing to choose"
		return m
	}
	action := map[Key]event.Action{"R": event.ActionRecycle, "T": event.ActionTrim, "C": event.ActionSignal}[k]
	o, refused := m.orderFor(r, action)
	if refused != "" {
		m.message = refused
		return m
	}
	m.mode, m.asked = asking, o
	return m
}

// orderFor is an order for a process, or for those of a rank that can; for a checkpoint always
// for the rank. The second value says why there is none.
func (k *known) orderFor(r *row, action event.Action) (*order, string) {
	n := r.node
	if n.missing {
		return nil, n.Node + " did not answer: nothing can be asked of it"
	}
	o := &order{Order: Order{Job: n.Job, Node: n.Node, Leader: n.Leader, Command: control.Command{Do: action}, Rank: -1}}
	where, asked := " on "+n.Node, action.Row().Asked
	target := ""
	switch {
	case action == event.ActionSignal && r.rank == nil:
		return nil, fmt.Sprintf("process %d belongs to no rank: it cannot write a checkpoint", r.pid)
	case action == event.ActionSignal:
		target = k.forRank(o, r)
		o.question = fmt.Sprintf("have %s%s write a checkpoint", target, where)
	case r.proc != nil && !can(r.proc, action):
		return nil, fmt.Sprintf("process %d (%s) cannot be %s%s", r.pid, r.role, asked, r.why())
	case r.proc != nil:
		o.Command.PIDs = []int{r.pid}
		target = strconv.Itoa(r.pid)
		o.question = fmt.Sprintf("%s %s %s%s%s (%v)", action, r.role, target, ofRank(r.rank), where, r.proc.RSS)
	default:
		o.Command.PIDs = k.of(r, func(p *control.Proc) bool { return can(p, action) })
		if len(o.Command.PIDs) == 0 {
			return nil, fmt.Sprintf("no process%s%s can be %s%s", ofRank(r.rank), where, asked, r.why())
		}
		if k.unambiguous(o, r.rank) {
			o.Rank = r.rank.Task
		}
		target = text.Count(len(o.Command.PIDs), "process") + ofRank(r.rank)
		o.question = fmt.Sprintf("%s %s%s: %s", action, target, where, text.List(o.Command.PIDs, 20))
	}
	o.name = fmt.Sprintf("%s of %s%s", action.Row().Command, target, where)
	return o, ""
}

// forRank narrows an order to one rank, and names it. Where ranks of several steps have its
// number, its trainers are named instead.
func (k *known) forRank(o *order, r *row) string {
	if k.unambiguous(o, r.rank) {
		o.Rank = r.rank.Task
		o.Command.Ranks = []int{o.Rank}
		return fmt.Sprintf("rank %d (process %d)", o.Rank, r.rank.PID)
	}
	o.Command.PIDs = k.of(r, func(p *control.Proc) bool { return p.Role == rss.RoleTrainer })
	if len(o.Command.PIDs) == 0 {
		o.Command.PIDs = []int{r.rank.PID}
	}
	if len(o.Command.PIDs) == 1 {
		return fmt.Sprintf("process %d", o.Command.PIDs[0])
	}
	return "processes " + text.List(o.Command.PIDs, 20)
}

// unambiguous says that no other rank of the same leader has the number of this one.
func (k *known) unambiguous(o *order, r *control.Rank) bool {
	same := 0
	for i := range k.ranks {
		if x := &k.ranks[i]; x.node.Node == o.Node && x.node.Leader == o.Leader && x.rank.Task == r.Task {
			same++
		}
	}
	return r.Task >= 0 && same == 1
}

// can says that an action may name a process.
func can(p *control.Proc, a event.Action) bool {
	return a == event.ActionTrim && p.CanTrim || a == event.ActionRecycle && p.CanRecycle
}

// of lists the processes of a rank that are of some kind.
func (k *known) of(r *row, kind func(*control.Proc) bool) (pids []int) {
	for i := range k.procs {
		if p := &k.procs[i]; p.rank == r.rank && p.node == r.node && kind(p.proc) {
			pids = append(pids, p.pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func ofRank(r *control.Rank) string {
	if r == nil || r.Task < 0 {
		return ""
	}
	return fmt.Sprintf(" of rank %d", r.Task)
}

// why says why an action cannot name a process, as far as that is known.
func (r *row) why() string {
	switch {
	case r.rank == nil:
		return ": it belongs to no rank"
	case r.rank.Why != "":
		return ": " + r.rank.Why
	case r.rank.Hook == "off" || r.rank.Hook == "":
		return ": no loader of its rank talks to rsswarden"
	case r.proc != nil && !r.proc.Role.IsWorker():
		return ": it is no worker of a loader or pool"
	}
	return ""
}

// begin makes the order that was asked for the newest.
func (m Model) begin() Model {
	o := *m.asked
	for _, d := range m.doing {
		o.ID = max(o.ID, d.ID+1)
	}
	o.ID, o.since = max(o.ID, 1), m.now
	m.doing = append([]order{o}, m.doing...)
	return m.decided()
}

// decided goes back to what was there before the question.
func (m Model) decided() Model {
	m.mode, m.asked = browsing, nil
	if m.pane != nil {
		m.mode = reading
	}
	return m
}

// orders are those that go on, and those that ended less than [kept] ago, the newest first.
// They are copied where one changes.
type orders []order

// with changes one order.
func (o orders) with(id int, change func(*order)) orders {
	o = slices.Clone(o)
	for i := range o {
		if o[i].ID == id {
			change(&o[i])
		}
	}
	return o
}

func (o orders) said(s Said) orders {
	return o.with(s.ID, func(o *order) {
		switch r := s.Result; {
		case !r.Done || r.PID != 0:
			o.results = append(slices.Clip(o.results), r)
		case !r.OK && o.failed() == 0:
			o.refused = reason(r.Reason, r.Detail)
		}
	})
}

func (o *order) failed() (n int) {
	for i := range o.results {
		n += yes(!o.results[i].OK)
	}
	return n
}

func resultText(r control.Result) string {
	text := strconv.Itoa(r.PID)
	if !r.OK {
		return text + " refused: " + reason(r.Reason, r.Detail)
	}
	text += " done"
	if r.Freed > 0 {
		text += fmt.Sprintf(", freed %v", r.Freed)
	}
	if r.Paused > 0 {
		text += fmt.Sprintf(", trainer paused %.0f ms", r.Paused*1e3)
	}
	return text
}

// reason says why something was not done.
func reason(why event.Reason, detail string) string {
	if why != "" && detail != "" {
		return string(why) + ", " + detail
	}
	return cmp.Or(string(why)+detail, "no reason was given")
}

func (o orders) ended(e Ended, now time.Time) orders {
	return o.with(e.ID, func(o *order) {
		o.until = now
		if e.Err != nil {
			o.refused = strings.Join(strings.Fields(e.Err.Error()), " ")
		}
	})
}

// expired drops orders that ended more than [kept] ago.
func (o orders) expired(now time.Time) orders {
	return slices.DeleteFunc(slices.Clone(o), func(o order) bool { return !o.until.IsZero() && now.Sub(o.until) > kept })
}

// progress says how an order goes.
func (o *order) progress(now time.Time) string {
	last, failed := o.refused, o.failed()+yes(o.refused != "")
	if n := len(o.results); n > 0 && last == "" {
		last = resultText(o.results[n-1])
		if len(o.Command.PIDs) == 1 || len(o.Command.Ranks) == 1 && o.Command.PIDs == nil {
			_, last, _ = strings.Cut(last, " ") // its name has the PID
		}
	}
	switch {
	case o.until.IsZero() && last == "":
		last = "no answer yet, " + since(now, o.since)
	case o.until.IsZero(), len(o.results) == 1, failed > 0 && len(o.results) == 0:
	case failed > 0:
		last = fmt.Sprintf("%d of %d not done, the last: %s", failed, len(o.results), last)
	default:
		var freed rss.Bytes
		for i := range o.results {
			freed += o.results[i].Freed
		}
		if last = "done"; freed > 0 {
			last += fmt.Sprintf(", freed %v", freed)
		}
	}
	return o.name + ": " + last
}
