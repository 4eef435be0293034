// Package population says which processes are watched and which of them a rule may act on:
// a command and its descendants, the commands of all ranks on a node, or a Slurm job.
package population

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

type Options struct {
	Proc string
	Tree *proctree.Reader
	// Command is the command that we hold or attached to. Followed returns the job that we
	// attached to as a whole; else it is nil.
	Command  rss.ProcID
	Followed func() Job
	Holder   int // its PID, 0 where we attached, our own where we watch beside a task
	Self     int // our PID
	// Names are what the kernel calls the watchers of other ranks.
	Names []string
	// Forks are what it calls the forks of our own holder, which are no orphans of the command's.
	Forks []string
}

// Rank is a rank of a job on this node that has a holder.
type Rank struct {
	Command rss.ProcID
	Step    string
	Holder  int
	Watcher int
}

// Population is what is watched, as of its last [Population.Read].
type Population struct {
	Options
	// Name is the job's, "46", or "46.0" where we attached to a step; empty outside Slurm.
	Name string

	job    Job // without roots where only the command is watched
	stepOf map[rss.ProcID]string
	// ours are we and our descendants, where we attached to what we run in.
	ours      map[rss.ProcID]bool
	oursRSS   rss.Bytes
	me        Rank
	others    []Rank
	steps     *unmanagedSteps // nil where none is looked for
	unmanaged unmanaged
	stale     bool // the job of the ranks is to be made again
}

// New returns the population of the command, or of the job that we attached to.
func New(o Options) *Population {
	p := &Population{Options: o}
	p.Update()
	return p
}

// SetRanks says who the ranks on this node are: we, and the others whose commands live.
func (p *Population) SetRanks(me Rank, others []Rank) {
	p.me, p.others, p.stale = me, others, true
	p.steps.cover(p.rankSteps())
}

// FindUnmanaged looks, from now on, for steps of our job on this node that no rank of ours
// is in: [Population.Heard] takes them in.
func (p *Population) FindUnmanaged(probes *probe.Set, sys string, job slurm.Job) {
	if p.steps = newUnmanagedSteps(p.Proc, sys, p.Command.PID, p.Self, job); p.steps == nil {
		return
	}
	p.steps.cover(p.rankSteps())
	p.steps.Reader = probe.New(probes, p.steps.changed)
	p.steps.Ask(unmanaged{}, true)
}

// rankSteps are the steps that ranks of ours are in.
func (p *Population) rankSteps() []string {
	steps := []string{p.me.Step}
	for _, r := range p.others {
		steps = append(steps, r.Step)
	}
	return steps
}

// Heard takes in the steps that no rank of ours is in, if they have changed, and says
// whether they have.
func (p *Population) Heard() bool {
	if p.steps == nil {
		return false
	}
	found, ok := p.steps.Take()
	if ok {
		p.steps.Ask(found, true)
		p.unmanaged, p.stale = found, true
	}
	return ok
}

// Update makes the job again where that may have changed, and returns it.
func (p *Population) Update() *Job {
	switch {
	case p.Followed != nil:
		p.job = p.Followed()
		p.Command, p.Name = p.job.Roots[0], p.job.Name
	case len(p.others)+len(p.unmanaged.tasks) == 0:
		p.job, p.stepOf = Job{}, nil
	case p.stale || len(p.job.Roots) == 0:
		p.stale = false
		p.job = p.ofRanks()
	}
	return &p.job
}

// ofRanks is the job of the ranks and of the steps without any.
func (p *Population) ofRanks() Job {
	j := Job{Name: p.Name, StepOf: map[rss.ProcID]string{}, Excluded: p.unmanaged.kept}
	add := func(id rss.ProcID, step string) {
		if _, twice := j.StepOf[id]; twice {
			return
		}
		j.Roots = append(j.Roots, id)
		j.StepOf[id] = step
		if !slices.Contains(j.Steps, step) {
			j.Steps = append(j.Steps, step)
		}
		if !slices.Contains(j.Excluded, step) {
			j.Tasks = append(j.Tasks, id)
		}
	}
	add(p.Command, p.me.Step)
	for _, r := range p.others {
		add(r.Command, r.Step)
	}
	for _, m := range p.unmanaged.tasks {
		add(m.ID, m.Step)
	}
	slices.Sort(j.Steps)
	return j
}

// Read reads the processes that are watched, without ourselves and what descends from us:
// who attaches may run in what it watches. Slurm counts us, and so does package limit.
func (p *Population) Read() ([]rss.Proc, rss.Gaps, error) {
	p.Update()
	if p.Holder != 0 {
		// A watcher of another rank may have been started again since that told who it is.
		var adopters []proctree.Adopter
		if p.Holder != p.Self { // who watches beside a task adopts nothing
			adopters = append(adopters, proctree.Adopter{PID: p.Holder, Root: p.Command, Own: p.Self, Names: p.Forks})
		}
		for _, r := range p.others {
			if r.Holder != r.Watcher {
				adopters = append(adopters, proctree.Adopter{PID: r.Holder, Root: r.Command, Own: r.Watcher, Names: p.Names})
			}
		}
		p.Tree.Adopt(adopters...)
	}
	procs, gaps, err := p.Tree.Trees(p.roots())
	if err != nil {
		return nil, gaps, err
	}
	if p.Holder == 0 {
		procs = p.withoutOurs(procs)
	}
	if p.IsJob() {
		p.place(procs)
	}
	return procs, gaps, nil
}

// SumRSS is the sum over the tree without ours, which have hardly grown since the last
// [Population.Read].
func (p *Population) SumRSS() (rss.Bytes, error) {
	sum, err := p.Tree.SumRSS()
	return sum.Sub(p.oursRSS), err
}

func (p *Population) roots() []rss.ProcID {
	if len(p.job.Roots) > 0 {
		return p.job.Roots
	}
	return []rss.ProcID{p.Command}
}

// RankCommands are our command and those of the other ranks.
func (p *Population) RankCommands() []rss.ProcID {
	all := []rss.ProcID{p.Command}
	for i := range p.others {
		all = append(all, p.others[i].Command)
	}
	return all
}

func (p *Population) withoutOurs(procs []rss.Proc) []rss.Proc {
	ours, lineage := map[rss.ProcID]bool{}, view.Lineage(procs)
	p.oursRSS = 0
	for i := range procs {
		for pid, up := range lineage.Up(procs[i].ID.PID) {
			// What was ours stays so when its parent has ended.
			if pid == p.Self || up != nil && p.ours[up.ID] {
				ours[procs[i].ID] = true
				p.oursRSS += procs[i].RSS
				break
			}
		}
	}
	p.ours = ours
	return slices.DeleteFunc(procs, func(q rss.Proc) bool { return ours[q.ID] })
}

// place finds the step of every process: that of a root is known, any other is in that of
// who started it, also when that has ended. Where it was not seen who did, its cgroup says.
func (p *Population) place(procs []rss.Proc) {
	before, lineage := p.stepOf, view.Lineage(procs)
	p.stepOf = make(map[rss.ProcID]string, len(procs))
	for i := range procs {
		step := ""
		for _, up := range lineage.Up(procs[i].ID.PID) {
			if up == nil {
				break
			}
			known := false
			if step, known = p.job.StepOf[up.ID]; !known {
				step, known = before[up.ID]
			}
			if known {
				break
			}
		}
		if step == "" {
			b, _ := procfile.Read(filepath.Join(p.Proc, strconv.Itoa(procs[i].ID.PID), "cgroup"), procfile.Small)
			_, step, _ = slurm.StepOfCgroup(b)
		}
		p.stepOf[procs[i].ID] = step
	}
}

// Attached says that we attached to the command, or to a job.
func (p *Population) Attached() bool { return p.Holder == 0 }

func (p *Population) FollowsJob() bool { return p.Followed != nil }

// IsJob says that a job is watched, not one process: one that we attached to, or
// one that has several ranks on this node of which we lead.
func (p *Population) IsJob() bool { return p.FollowsJob() || len(p.job.Roots) > 1 }

// Job is what is watched of a job; without roots where only the command is.
func (p *Population) Job() *Job { return &p.job }

// Step is the step of a process, empty where one command is watched.
func (p *Population) Step(id rss.ProcID) string { return p.stepOf[id] }

// Excluded says that a process is never signalled.
func (p *Population) Excluded(id rss.ProcID) bool {
	return slices.Contains(p.job.Excluded, p.stepOf[id])
}

// InScope says that a process may be acted on for the sake of a step, or of all
// where that is empty.
func (p *Population) InScope(id rss.ProcID, step string) bool {
	return !p.Excluded(id) && (step == "" || p.stepOf[id] == step)
}

// Tasks are the command, or of a job its tasks.
func (p *Population) Tasks() []rss.ProcID {
	if p.IsJob() {
		return p.job.Tasks
	}
	return []rss.ProcID{p.Command}
}

// Commands are the tasks in scope of a step that live.
func (p *Population) Commands(s *rss.Sample, step string) []*rss.Proc {
	var list []*rss.Proc
	for _, id := range p.Tasks() {
		if q := s.Find(id.PID); q != nil && q.ID == id && q.State != 'Z' && p.InScope(id, step) {
			list = append(list, q)
		}
	}
	return list
}

// All are the processes in scope of a step.
func (p *Population) All(s *rss.Sample, step string) []rss.ProcID {
	var list []rss.ProcID
	for i := range s.Procs {
		if id := s.Procs[i].ID; p.InScope(id, step) {
			list = append(list, id)
		}
	}
	return list
}

// IsAll says that nothing goes on where the step is stopped but what is excluded.
func (p *Population) IsAll(s *rss.Sample, step string) bool {
	return step == "" || !slices.ContainsFunc(s.Procs, func(q rss.Proc) bool {
		return !p.Excluded(q.ID) && p.stepOf[q.ID] != step
	})
}

// Target names what is in scope of a step, for people.
func (p *Population) Target(step string) string {
	switch {
	case !p.IsJob():
		return "the command"
	case step != "":
		job, _, _ := strings.Cut(p.Name, ".")
		return "step " + job + "." + step
	}
	name := "job " + p.Name
	if !p.FollowsJob() {
		name += " on this node"
	}
	excluded := slices.DeleteFunc(slices.Clone(p.job.Excluded), func(step string) bool { return !slices.Contains(p.job.Steps, step) })
	if len(excluded) > 0 {
		name += " but for step " + strings.Join(excluded, " and ")
	}
	return name
}

// holderName is what the kernel calls the process of `rsswarden run` that holds a
// command.
const holderName = "rsswarden"

// OuterRun is the nearest `rsswarden run` that the holder of this run is a descendant
// of, 0 for none or where the way up cannot be read.
func OuterRun(proc string, holder int) int {
	for i, err := range proctree.Parents(proc, holder) {
		if err != nil {
			break
		}
		if i.ID.PID != holder && i.Comm == holderName {
			return i.ID.PID
		}
	}
	return 0
}

// BySite says that the SPANK plugin of a site started this `rsswarden run`. A run that is not
// ours to read is not known to be.
func BySite(proc string, holder int) bool {
	env, err := procfile.Read(filepath.Join(proc, strconv.Itoa(holder), "environ"), procfile.Table)
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00RSSWARDEN_BY=site\x00"))
}

// InnerRun is a `rsswarden run` that the command has become or started, 0 for none.
func InnerRun(procs []rss.Proc, command int) int {
	parents := map[int]int{}
	for i := range procs {
		parents[procs[i].ID.PID] = procs[i].Parent
	}
	for i := range procs {
		if procs[i].Comm != holderName {
			continue
		}
		pid := procs[i].ID.PID
		for range procs { // no further than all of them
			if pid == command {
				return procs[i].ID.PID
			}
			pid = parents[pid]
		}
	}
	return 0
}

// Srun is a srun among the processes, 0 for none: slurmstepd starts its tasks, so they are
// no descendants of it.
func Srun(procs []rss.Proc) int {
	i := slices.IndexFunc(procs, func(p rss.Proc) bool { return p.Comm == "srun" })
	if i < 0 {
		return 0
	}
	return procs[i].ID.PID
}

// passers catch every signal and pass it on to what they run, which may have no handler
// for it and die: the parent of a container of Apptainer's or Singularity's, and the init
// where PID numbers are the container's own.
var passers = map[string]bool{"starter": true, "starter-suid": true, "appinit": true, "sinit": true}

// InContainers returns, for each of the processes that only passes signals on, what it
// runs, and every other as it is.
func InContainers(s *rss.Sample, all []*rss.Proc) (list []*rss.Proc) {
	for _, p := range all {
		list = append(list, runs(s, p, 4)...) // a runtime, its init, and to spare
	}
	return list
}

func runs(s *rss.Sample, p *rss.Proc, deep int) (list []*rss.Proc) {
	if passers[p.Comm] && deep > 0 {
		for i := range s.Procs {
			if q := &s.Procs[i]; q.Parent == p.ID.PID && q.State != 'Z' && q.State != 'X' {
				list = append(list, runs(s, q, deep-1)...)
			}
		}
	}
	if len(list) == 0 { // a program of that name runs nothing
		list = append(list, p)
	}
	return list
}
