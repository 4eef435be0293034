package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// doctorJob is what was read of the job that we are in.
type doctorJob struct {
	pid    int
	cgroup doctor.Check
	limits doctor.LimitFacts
	tree   doctor.TreeFacts
	slurm  doctor.SlurmFacts
}

func (j *doctorJob) checks() []doctor.Check {
	return append([]doctor.Check{doctor.Limit(j.limits), doctor.Tree(j.tree), j.cgroup}, doctor.Slurm(j.slurm)...)
}

// findJob reads the limits as run finds them, with the --limit that the
// environment and the files name.
func (d *diagnosis) findJob() *doctorJob {
	const proc, sys = "/proc", "/sys"
	j := &doctorJob{pid: standing(proc, os.Getppid(), os.Getpid())}
	var hidden bool
	j.cgroup, hidden = doctor.Cgroup(proc, sys, j.pid)
	j.limits.Hidden, j.tree.PID = hidden, j.pid

	s := &d.settings
	accounting := s.Accounting
	if accounting == "" {
		accounting = event.AccountingAuto
	}
	ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
	defer cancel()
	set, warnings := limit.Find(ctx, limit.Config{
		Proc: proc, Sys: sys, PID: j.pid, Lookup: d.p.lookup, Accounting: accounting, User: s.Limit, UserShare: s.LimitShare, UserSource: d.origin("limit"),
		Slurm: slurm.Search{Lookup: d.p.lookup, Scontrol: slurm.Scontrol},
	})
	defer set.Close()
	sample, err := countedBy(set, proc, j.pid)
	j.tree.Procs, j.tree.Gaps, j.tree.Err = len(sample.Procs), sample.Gaps, err
	j.limits.Limits = set.Read(sample)
	for _, w := range append(warnings, set.Warnings()...) {
		j.limits.Warnings = append(j.limits.Warnings, w.String())
	}
	j.slurm.Job, j.slurm.InJob = set.Job()
	j.slurm.Rules = set.Enforcement()
	if j.slurm.InJob {
		j.findVersion(ctx)
	}
	j.limits.Assumed = !j.slurm.Rules.Known
	for _, l := range j.limits.Limits {
		if l.Name == event.LimitCgroup && (l.Scope == event.ScopeStep || l.Scope == event.ScopeJob) {
			j.slurm.Kernel = true
		}
	}
	j.readParent(proc)
	return j
}

// findVersion finds the version of Slurm, which is known already where that decides who
// kills.
func (j *doctorJob) findVersion(ctx context.Context) {
	f := &j.slurm
	if f.Version = f.Rules.Version; f.Version != "" {
		f.VersionSource = "scontrol --version"
		if strings.HasPrefix(f.Rules.Source, "scontrol") {
			f.VersionSource = f.Rules.Source
		}
		return
	}
	if v, err := slurm.FindVersion(ctx, slurm.Scontrol); err == nil {
		f.Version, f.VersionSource = v, "scontrol --version"
	}
}

// origin is where an option was chosen, as the user wrote it.
func (d *diagnosis) origin(name string) string {
	for _, o := range d.settings.Origins {
		switch {
		case o.Name != name || o.Origin == originDefault:
		case o.Origin == originEnvironment:
			return variableOf(name)
		case filepath.IsAbs(o.Origin):
			return o.Origin
		default:
			return d.p.site
		}
	}
	return ""
}

// readParent finds out who started us, and where that is a shell that runs a
// batch script, what stands in it.
func (j *doctorJob) readParent(proc string) {
	f := &j.slurm
	f.ParentPID = os.Getppid()
	if i, err := proctree.Identify(proc, f.ParentPID); err == nil {
		f.Parent = i.Comm
	}
	if !f.InJob || f.Job.StepID != slurm.StepBatch {
		return
	}
	for _, word := range commandLine(f.ParentPID) {
		// slurmd calls its copy of every batch script so.
		if filepath.Base(word) != "slurm_script" || !filepath.IsAbs(word) {
			continue
		}
		text, answered := within(func() string {
			b, err := slurm.ReadFile(word)
			if err != nil {
				return ""
			}
			return string(b)
		})
		if answered && text != "" {
			f.Script, f.Text = word, text
		}
		return
	}
}

// jobCounts are the limits on numbers.
func jobCounts(j *doctorJob, t trialRun) doctor.Counts {
	const proc = "/proc"
	var n doctor.Counts
	n.MaxMaps, _ = proctree.MapLimit(proc)
	n.Files, n.HardFiles, n.FilesKnown = doctor.ParseLimits(t.limits, "Max open files")
	n.Tasks, n.MaxTasks, n.TasksFile = doctor.CgroupTasks(proc, "/sys", j.pid)
	if soft, _, ok := doctor.ParseLimits(t.limits, "Max processes"); ok {
		countUser(&n, proc, soft)
	}
	type size struct {
		used, all rss.Bytes
		err       error
	}
	shm, ok := within(func() (s size) {
		_, s.used, s.all, s.err = statFS("/dev/shm")
		return s
	})
	if n.Shm, n.ShmSize, n.ShmErr = shm.used, shm.all, shm.err; !ok {
		n.ShmErr = fmt.Errorf("no answer from the file system within %v", preparePatience)
	}
	return n
}

// countUser counts what RLIMIT_NPROC is compared with, where it holds for us.
func countUser(n *doctor.Counts, proc string, soft uint64) {
	who, err := proctree.TaskUserOf(proc, os.Getpid())
	if err != nil {
		return
	}
	if who.Exempt || soft == proctree.Unlimited {
		n.UserKnown = true
		return
	}
	c := proctree.NewCounter(proc)
	defer c.Close()
	if counted, err := c.UserTasks(who.UID); err == nil {
		n.MaxUser, n.UserTasks, n.UserKnown = soft, uint64(counted.N), true
	}
}
