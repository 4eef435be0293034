package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// limitFacts are the limits of the job as [limit.Set.Read] gives them.
type limitFacts struct {
	Limits   []event.Limit
	Warnings []string // of limit.Find: what could not be found out
	// Assumed says that slurmstepd's limit is an assumption.
	Assumed bool
	// Hidden says that levels of the cgroup exist that cannot be seen from here.
	Hidden bool
	Err    error
}

// Least is the limit that leaves the least room of those that end this job or that the
// user chose, nil for none.
func (f limitFacts) Least() *event.Limit {
	var least *event.Limit
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Name.Row().OfJob && l.Limit > 0 && (least == nil || l.Headroom() < least.Headroom()) {
			least = l
		}
	}
	return least
}

// Room is what may be used before a limit or the node's end, false if unknown.
func (f limitFacts) Room() (rss.Bytes, bool) {
	room, known := rss.Bytes(0), false
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Name.Row().Ladder && l.Limit > 0 && (!known || l.Headroom() < room) {
			room, known = l.Headroom(), true
		}
	}
	return room, known
}

const sayLimit = "say which size the job must keep: rsswarden run --limit SIZE"

// limitCheck says which limit ends the job here.
func limitCheck(f limitFacts) Check {
	c := Check{Name: NameLimit, Status: OK}
	l := f.Least()
	switch {
	case f.Err != nil:
		c.Status, c.Found, c.Do = Off, fmt.Sprintf("no limit can be read: %v", f.Err), sayLimit
		c.part = "no limit can be read"
		return c
	case l == nil:
		return unlimited(f)
	}
	c.Found = fmt.Sprintf("%s: %v, %s used; %s, on %s", l.Name, l.Limit, text.Percent(l.Ratio()), l.Enforcer, l.Compared())
	if l.Name == event.LimitUser {
		c.Found = fmt.Sprintf("%s: %v, %s used; rsswarden's own rules, on %s", l.Name, l.Limit, text.Percent(l.Ratio()), l.Compared())
	}
	if more := len(f.Limits) - 1; more > 0 {
		c.Found += fmt.Sprintf("; rsswarden limits shows %d more", more)
	}
	c.Source = l.LimitSource
	switch {
	case f.Assumed && l.Name == event.LimitSlurm:
		c.Status = Limited
		c.Found += "; an assumption, Slurm's configuration cannot be read"
		c.Do = "have SLURM_CONF name a readable slurm.conf, or scontrol be on PATH; or " + sayLimit
		c.part = "it is only assumed that slurmstepd kills"
	case len(f.Warnings) > 0:
		c.Status = Limited
		c.Found += "; not certain: " + f.Warnings[0]
		c.Do = "rsswarden limits shows what was looked at"
		c.part = "not every limit could be read"
	default:
		c.gain = fmt.Sprintf("limit %s of %v, from %s", l.Name, l.Limit, l.Place())
	}
	return c
}

// unlimited is the check if no limit is this job's own.
func unlimited(f limitFacts) Check {
	c := Check{Name: NameLimit, Status: Limited, Do: sayLimit, part: "no limit of this job's own is known"}
	i := slices.IndexFunc(f.Limits, func(l event.Limit) bool { return l.Name == event.LimitNode })
	switch {
	case i >= 0:
		l := &f.Limits[i]
		c.Found = fmt.Sprintf("nothing limits this job's memory but the node: %v, %s used, by everybody on it", l.Limit, text.Percent(l.Ratio()))
		c.Source = l.LimitSource
	default:
		c.Found = "nothing that limits memory can be seen"
	}
	if f.Hidden {
		c.Found += "; the cgroups above cannot be seen, and one of them may have a limit"
	}
	if len(f.Warnings) > 0 {
		c.Found += "; not certain: " + strings.Join(f.Warnings, "; ")
	}
	return c
}

// treeFacts are how the process tree was read.
type treeFacts struct {
	PID   int // the process it was read from
	Procs int
	Gaps  rss.Gaps
	Err   error
}

// treeCheck says whether a watcher can read the processes of a job.
func treeCheck(f treeFacts) Check {
	c := Check{Name: NameTree, Status: OK, Source: "/proc/PID/stat, /proc/PID/status"}
	switch {
	case f.Err != nil:
		c.Status, c.Found = Off, fmt.Sprintf("the processes of this job cannot be read: %v", f.Err)
		c.Do = "have /proc mounted where the job runs (in a container, with its own PID namespace)"
		c.part = "the processes of the job cannot be read"
	case f.Gaps.Denied > 0:
		c.Status = Limited
		c.Found = fmt.Sprintf("process %d and its descendants: %d were read, %d may not be", f.PID, f.Procs, f.Gaps.Denied)
		c.Do = "be the user of all processes of the job"
		c.part = "some processes of the job may not be read"
	default:
		c.Found = fmt.Sprintf("process %d and its descendants can be read (%d now)", f.PID, f.Procs)
	}
	return c
}

// doctorJob is what was read of the job.
type doctorJob struct {
	limits limitFacts
	tree   treeFacts
	slurm  slurmFacts
}

// limits reads the limits as run finds them, with the --limit of the environment and of
// the files.
func (d *prober) limits() []Check {
	const proc, sys = "/proc", "/sys"
	j := &d.job
	cgroup, hidden := cgroupCheck(proc, sys, d.PID)
	j.limits.Hidden, j.tree.PID = hidden, d.PID
	ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
	defer cancel()
	set, warnings := limit.Find(ctx, limit.Config{
		Proc: proc, Sys: sys, PID: d.PID, Lookup: d.Lookup, Accounting: cmp.Or(d.Accounting, event.AccountingAuto), User: d.Limit, UserShare: d.LimitShare, UserSource: d.Origin("limit"),
		Slurm: slurm.Search{Lookup: d.Lookup, Scontrol: slurm.Scontrol},
	})
	defer set.Close()
	sample, err := d.Sample(set, proc, d.PID)
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
	d.readParent(proc)
	return append([]Check{limitCheck(j.limits), treeCheck(j.tree), cgroup}, slurmChecks(j.slurm)...)
}

// findVersion finds the version of Slurm; the rules have it where it decides who kills.
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

// readParent finds out who started us, and the text of a batch script that it runs.
func (d *prober) readParent(proc string) {
	f := &d.job.slurm
	f.ParentPID = os.Getppid()
	if i, err := proctree.Identify(proc, f.ParentPID); err == nil {
		f.Parent = i.Comm
	}
	if !f.InJob || f.Job.StepID != slurm.StepBatch {
		return
	}
	for _, word := range d.CommandLine(f.ParentPID) {
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
