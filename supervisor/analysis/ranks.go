package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// RankSeen is one rank over one run: that of the run itself, and with a leader's
// record every other of its node. Times are of the run, -1 where not known.
type RankSeen struct {
	RankKey
	Pid, holder int
	Comm        string
	own         bool // the run's own
	joined      time.Duration
	ended       time.Duration // negative while it is not known to have ended
	code        *int
	signal      *string

	// now is the sum of RSS of its processes in the sample at hand, peak the most.
	now, Peak    rss.Bytes
	PeakAt       time.Duration
	Seen         bool // it has processes in the record
	workers      int  // at most at a time
	workersInNow int
}

// known says that its end is known.
func (r *RankSeen) known() bool { return r.signal != nil || r.code != nil }

// failed says that it is known to have ended otherwise than with status 0.
func (r *RankSeen) failed() bool { return r.signal != nil || r.code != nil && *r.code != 0 }

// RanksSeen are the ranks of one run.
type RanksSeen struct {
	List []*RankSeen
	// of is the rank of each process, by index in run.Procs; -1 for none.
	of []int
	// led says that the record has ranks: it is a leader's. leads is when its
	// watcher took the lead, -1 where it does not say.
	led   bool
	leads time.Duration
}

// ranksOf finds the ranks of a run, and whose each process is. Rank events are few:
// they are read before the samples.
func ranksOf(r *record.Run) RanksSeen {
	l := RanksSeen{leads: -1}
	own := &RankSeen{own: true, joined: 0, ended: -1, Pid: r.Meta.Process.PID, holder: r.Meta.Holder}
	own.RankKey = RankKey{Task: -1, holder: r.Meta.Holder}
	if j := r.Meta.Job; j != nil {
		own.RankKey = RankKey{Step: j.Step, Task: j.Task}
	}
	l.List = append(l.List, own)
	for i := range r.Events {
		e, ok := r.Events[i].Value.(*event.Rank)
		if !ok {
			continue
		}
		l.led = true
		if e.What == event.RankLeads && l.leads < 0 && (e.Holder == 0 || e.Holder == r.Meta.Holder) {
			l.leads = r.Events[i].At
		}
		l.take(r.Events[i].At, e)
	}
	l.assign(r)
	return l
}

// Led says that the record has ranks, Failed that one is known to have failed.
func (l *RanksSeen) Led() bool    { return l.led }
func (l *RanksSeen) Failed() bool { return slices.ContainsFunc(l.List, (*RankSeen).failed) }

func RankOf(e *event.Rank) RankKey {
	if e.Task < 0 {
		return RankKey{e.Step, -1, e.Holder}
	}
	return RankKey{Step: e.Step, Task: e.Task}
}

func (l *RanksSeen) find(key RankKey) *RankSeen {
	i := slices.IndexFunc(l.List, func(r *RankSeen) bool { return r.RankKey == key })
	if i < 0 {
		return nil
	}
	return l.List[i]
}

func (l *RanksSeen) take(at time.Duration, e *event.Rank) {
	key := RankOf(e)
	r := l.find(key)
	if r == nil {
		if len(l.List) >= mostRanks {
			return
		}
		r = &RankSeen{RankKey: key, joined: at, ended: -1}
		l.List = append(l.List, r)
	}
	if e.PID != 0 {
		r.Pid = e.PID
	}
	if e.Holder != 0 {
		r.holder = e.Holder
	}
	if e.What == event.RankEnded {
		r.ended, r.code, r.signal = at, e.Code, e.Signal
	}
}

// mostRanks bounds the ranks of one run: steps may come by the thousand.
const mostRanks = 4096

// assign says of each process which rank it is of: the nearest ancestor that is a
// rank's command or holder. A PID that was used again is the one that was there
// when the child began.
func (l *RanksSeen) assign(r *record.Run) {
	l.of = make([]int, len(r.Procs))
	byPID := make(map[int][]int, len(r.Procs))
	for i := range r.Procs {
		l.of[i] = unassigned
		byPID[r.Procs[i].ID.PID] = append(byPID[r.Procs[i].ID.PID], i)
	}
	ranks := map[int]int{}
	for i, k := range l.List {
		for _, pid := range []int{k.holder, k.Pid} {
			if pid != 0 {
				ranks[pid] = i
			}
		}
	}
	for i := range r.Procs {
		if l.ours(r, i, byPID) {
			l.of[i] = noRank
			continue
		}
		l.of[i] = l.ancestor(r, i, byPID, ranks, 0)
		if n := l.of[i]; n >= 0 && l.List[n].Pid == r.Procs[i].ID.PID {
			l.List[n].Comm = r.Procs[i].Comm
		}
	}
}

// ours says that a process is rsswarden's: the record marks those of its own rank,
// the others are a rank's holder and what it starts by the same name, its watcher.
func (l *RanksSeen) ours(r *record.Run, i int, byPID map[int][]int) bool {
	p := &r.Procs[i]
	if p.Ours {
		return true
	}
	for _, k := range l.List {
		switch {
		case k.holder == 0 || p.ID.PID == k.Pid:
		case p.ID.PID == k.holder:
			return true
		case p.Parent == k.holder:
			return slices.ContainsFunc(byPID[k.holder], func(h int) bool { return r.Procs[h].Comm == p.Comm })
		}
	}
	return false
}

const (
	noRank     = -1
	unassigned = -2
	// deepest bounds the ancestors that are followed: a damaged record may have
	// them in a circle.
	deepest = 64
)

func (l *RanksSeen) ancestor(r *record.Run, i int, byPID map[int][]int, ranks map[int]int, depth int) int {
	p := &r.Procs[i]
	if n, ok := ranks[p.ID.PID]; ok {
		return n
	}
	if l.of[i] != unassigned {
		return l.of[i]
	}
	if n, ok := ranks[p.Parent]; ok {
		return n
	}
	parent := -1
	for _, j := range byPID[p.Parent] {
		if start := r.Procs[j].ID.Start; j != i && start <= p.ID.Start && (parent < 0 || start > r.Procs[parent].ID.Start) {
			parent = j
		}
	}
	if parent < 0 || depth == deepest {
		return noRank
	}
	return l.ancestor(r, parent, byPID, ranks, depth+1)
}

func (l *RanksSeen) begin() {
	for _, r := range l.List {
		r.now, r.workersInNow = 0, 0
	}
}

func (l *RanksSeen) add(u *record.Usage, p *record.Proc) {
	if n := l.of[u.Proc]; n >= 0 {
		r := l.List[n]
		r.now += u.RSS()
		r.Seen = true
		if p.Role == rss.RoleWorker {
			r.workersInNow++
		}
	}
}

func (l *RanksSeen) end(at time.Duration) {
	for _, r := range l.List {
		if r.now > r.Peak {
			r.Peak, r.PeakAt = r.now, at
		}
		r.workers = max(r.workers, r.workersInNow)
	}
}

// most is the rank whose processes have most in the sample at hand, nil where none
// has anything.
func (l *RanksSeen) most() *RankSeen {
	var most *RankSeen
	for _, r := range l.List {
		if r.now > 0 && (most == nil || r.now > most.now) {
			most = r
		}
	}
	return most
}
