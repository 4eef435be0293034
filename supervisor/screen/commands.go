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
	until    time.Time // zero while it is going on
	results  int
	failed   int
	freed    rss.Bytes
	text     string // of the newest result
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
	where := " on " + n.Node
	target, verb := "", action.Row().Command
	switch {
	case action == event.ActionSignal:
		if r.rank == nil {
			return nil, fmt.Sprintf("process %d belongs to no rank: it cannot write a checkpoint", r.pid)
		}
		target = k.forRank(o, r.rank)
		o.question = fmt.Sprintf("have %s%s write a checkpoint", target, where)
	case r.proc != nil:
		if !can(r.proc, action) {
			return nil, fmt.Sprintf("process %d (%s) cannot be %s%s", r.pid, r.proc.Role, action.Row().Asked, r.why())
		}
		o.Command.PIDs = []int{r.proc.PID}
		target = fmt.Sprintf("%s %d%s", r.proc.Role, r.proc.PID, ofRank(r.rank))
		o.question = fmt.Sprintf("%s %s%s (%v)", action, target, where, r.proc.RSS)
		target = strconv.Itoa(r.proc.PID)
	default:
		o.Command.PIDs = k.able(r, action)
		if k.unambiguous(o, r.rank) {
			o.Rank = r.rank.Task
		}
		if len(o.Command.PIDs) == 0 {
			return nil, fmt.Sprintf("no process%s%s can be %s%s", ofRank(r.rank), where, action.Row().Asked, r.why())
		}
		target = text.Count(len(o.Command.PIDs), "process") + ofRank(r.rank)
		o.question = fmt.Sprintf("%s %s%s: %s", action, target, where, text.List(o.Command.PIDs, 20))
	}
	o.name = fmt.Sprintf("%s of %s%s", verb, target, where)
	return o, ""
}

// forRank narrows an order to one rank, and names it. Where ranks of several steps have its
// number, its trainers are named instead.
func (k *known) forRank(o *order, r *control.Rank) string {
	if k.unambiguous(o, r) {
		o.Rank = r.Task
		o.Command.Ranks = []int{r.Task}
		return fmt.Sprintf("rank %d (process %d)", r.Task, r.PID)
	}
	for i := range k.procs {
		if p := &k.procs[i]; p.rank == r && p.proc.Role == rss.RoleTrainer {
			o.Command.PIDs = append(o.Command.PIDs, p.proc.PID)
		}
	}
	if len(o.Command.PIDs) == 0 {
		o.Command.PIDs = []int{r.PID}
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

// able lists the processes of a rank that an action may name.
func (k *known) able(r *row, action event.Action) (pids []int) {
	for i := range k.procs {
		p := &k.procs[i]
		if p.rank != r.rank || p.node != r.node {
			continue
		}
		if can(p.proc, action) {
			pids = append(pids, p.proc.PID)
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
	case r.proc != nil && r.proc.Role != rss.RoleWorker:
		return ": it is no loader worker"
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
		r := s.Result
		if r.Done && r.PID == 0 {
			if !r.OK && o.failed == 0 {
				o.failed, o.text = 1, reason(r.Reason, r.Detail)
			}
			return
		}
		o.results++
		if !r.OK {
			o.failed++
		}
		o.freed += r.Freed
		o.text = resultText(r)
		if len(o.Command.PIDs) == 1 || len(o.Command.Ranks) == 1 && o.Command.PIDs == nil {
			_, o.text, _ = strings.Cut(o.text, " ") // its name has the PID
		}
	})
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
			o.failed++
			o.text = strings.Join(strings.Fields(e.Err.Error()), " ")
		}
	})
}

// expired drops orders that ended more than [kept] ago.
func (o orders) expired(now time.Time) orders {
	return slices.DeleteFunc(slices.Clone(o), func(o order) bool { return !o.until.IsZero() && now.Sub(o.until) > kept })
}

// progress says how an order goes.
func (o *order) progress(now time.Time) string {
	text := ": " + o.text
	switch {
	case o.until.IsZero() && o.text == "":
		text = ": no answer yet, " + since(now, o.since)
	case o.until.IsZero(), o.results == 1, o.failed > 0 && o.results == 0:
	case o.failed > 0:
		text = fmt.Sprintf(": %d of %d not done, the last: %s", o.failed, o.results, o.text)
	default:
		text = ": done"
		if o.freed > 0 {
			text += fmt.Sprintf(", freed %v", o.freed)
		}
	}
	return o.name + text
}
