package action

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Env is what all actions share: what was read last, and what they act through. The loop
// fills it in as it finds each part, and nothing here changes it.
type Env struct {
	Settings *settings.Settings
	Able     attach.Abilities
	Proc     string // "/proc"
	Sys      string // "/sys"
	Self     int    // PID of the watcher
	Attempt  int    // of this watcher, from 1
	Lookup   func(string) (string, bool)
	Now      func() time.Duration // the watcher's clock

	*observe.Observer
	View   *view.View
	Ladder *policy.State
	Holder Holder
	Ranks  Ranks
	Tell   *tell.Fan
}

// Holder is the process that started the command.
type Holder interface {
	// Override has it end with a status whatever that of the command is.
	Override(status int) error
	Start(*exec.Cmd) error
}

// Ranks are the ranks of the job on this node, ours among them.
type Ranks interface {
	// Task is the rank that a process belongs to, by SLURM_PROCID, and Key the same by
	// its holder. Others says that it is another rank than ours.
	Task(pid int) int
	Key(pid int) rss.ProcID
	Others(pid int) bool
	// Successor says that another led before us, Has that a rank is on this node, Several that
	// there is another than ours, and Alone that we could not meet others, if there are any.
	Successor() bool
	Has(task int) bool
	Several() bool
	Alone() bool

	// OurPIDs are the holders and watchers of this node, and Tracer the holder that may
	// trace a process, which Trim asks for one piece: [Set.Trimmed] answers.
	OurPIDs() []int
	Tracer(pid int) int
	Trim(hold.TrimRequest) error

	// StopOthers has the commands of the other ranks of a step stopped, and says how
	// many were asked. Stopping says that our own command was told to end before, and
	// Stops that it is meant by a stop of the step, too.
	StopOthers(step string) int
	Stopping() bool
	Stops(step string) bool

	// Waits says that a recycle must wait for its turn; Recycled notes one.
	Waits(left time.Duration, nodes int) bool
	Recycled(rank rss.ProcID)
	LastRecycled(rank rss.ProcID) time.Duration

	// SaveHandover keeps what the ladder remembers for the next leader.
	SaveHandover()
}

// Kill signals one process of the tree. Never ourselves: an attach may run in
// what it watches; and never an excluded process.
func (a *Env) Kill(id rss.ProcID, sig syscall.Signal) error {
	if id.PID == a.Self {
		return nil
	}
	if a.Pop.Excluded(id) {
		return fmt.Errorf("cannot signal process %v: the step %s is spared", id, a.Pop.Step(id))
	}
	return Kill(id, sig, func(pid int) (uint64, error) { return proctree.StartTime(a.Proc, pid) })
}

// noHook is why no loader can be asked for anything, where it is not told more closely.
const noHook = "no loader hook"

// NoHook says why no loader can be asked for anything.
func (a *Env) NoHook() string {
	if a.Loader != nil {
		return cmp.Or(a.Workers.NoHello(), "no DataLoader workers found")
	}
	return cmp.Or(a.Able.Hook, noHook)
}

// LeafLimit is the memory limit of the innermost cgroup, nil where none limits.
func (a *Env) LeafLimit() *event.Limit {
	var leaf *event.Limit
	for i := range a.View.Limits {
		l := &a.View.Limits[i]
		if l.Name == event.LimitCgroup && l.Limit > 0 && (leaf == nil || len(l.Level) > len(leaf.Level)) {
			leaf = l
		}
	}
	return leaf
}

// wanted says that a command means a process, and which rank that is of.
func (a *Env) wanted(cmd *control.Command, pid int) (task int, ok bool) {
	task = a.Ranks.Task(pid)
	switch {
	case len(cmd.PIDs) > 0:
		return task, slices.Contains(cmd.PIDs, pid)
	case len(cmd.Ranks) > 0:
		return task, slices.Contains(cmd.Ranks, task)
	}
	return task, true
}

// hookTargets are those of the processes that a command means, by rank.
func (a *Env) hookTargets(cmd *control.Command, pids []int) []target {
	if a.Loader == nil {
		return nil
	}
	var todo []target
	for _, pid := range pids {
		task, ok := a.wanted(cmd, pid)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(todo, func(t target) bool { return t.task == task }); i >= 0 {
			todo[i].pids = append(todo[i].pids, pid)
		} else {
			todo = append(todo, target{task, []int{pid}})
		}
	}
	slices.SortFunc(todo, func(a, b target) int { return a.task - b.task })
	return todo
}

// target is one step of a command: a worker, or all processes of a rank.
type target struct {
	task int
	pids []int
}
