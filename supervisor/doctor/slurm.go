package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

type slurmFacts struct {
	Job   slurm.Job
	InJob bool
	Rules slurm.Enforcement
	// Version is Slurm's, empty where it is not known, and VersionSource where it was read.
	Version, VersionSource string
	// kernelChecks says that a cgroup limit of the step or job was found.
	Kernel bool
	// Parent is the name of the process that started us, empty if unknown; Script and
	// Text are the batch script that it runs.
	Parent       string
	ParentPID    int
	Script, Text string
}

// findVersion finds the version of Slurm; the rules have it where it decides who kills.
func (f *slurmFacts) findVersion(ctx context.Context) {
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
func (f *slurmFacts) readParent(proc string, commandLine func(pid int) []string) {
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

func slurmChecks(f slurmFacts) []Check {
	if !f.InJob {
		return []Check{{Name: NameSlurm, Status: OK, Found: "not in a Slurm job", Source: "no SLURM_JOB_ID in the environment"}}
	}
	c := Check{Name: NameSlurm, Status: OK, Found: "job " + f.Job.ID + ", step " + f.Job.StepID, Source: "SLURM_JOB_ID, SLURM_STEP_ID, cgroup"}
	if f.Job.Nodes > 1 {
		c.Found += fmt.Sprintf(", %d nodes", f.Job.Nodes)
	}
	if f.Job.StepID == "" {
		return []Check{c.as(Limited, "start the training in a step: srun rsswarden run -- …", "job %s, in no step of it: slurmstepd does not count what runs here", f.Job.ID)}
	}
	return append(append([]Check{c, accounting(f)}, releases(f)...), signals(f))
}

// releases says what holds for this version of Slurm where that differs between releases.
func releases(f slurmFacts) []Check {
	if f.Version == "" {
		return []Check{{
			Name: NameRelease, Status: Limited,
			Found: "Slurm's version is not known: a limit on the sum of all steps is shown as one by which slurmd perhaps cancels the job, " +
				"and what jobacct_gather/cgroup counts on cgroup v2 as a range",
			Do: "have scontrol be on PATH",
		}}
	}
	c := Check{Name: NameRelease, Status: OK, Found: "Slurm " + f.Version, Source: f.VersionSource}
	if next := (slurm.Release{slurm.Newest[0], slurm.Newest[1] + 1}); next.In(f.Version) {
		c = c.as(Limited, "look for a newer rsswarden", "%s, newer than what this rsswarden knows: what follows is of %v", c.Found, slurm.Newest)
	}
	all := []Check{c}
	for _, change := range slurm.Changes {
		at := change.At(f.Version)
		all = append(all, Check{Name: NameRelease, Status: OK, Found: change.What + ": " + at.Holds, Source: at.Source()})
	}
	return all
}

func accounting(f slurmFacts) Check {
	e := f.Rules
	c := Check{Name: NameAccounting, Status: OK, Source: e.Source}
	if !e.Known {
		c = c.as(Limited, "have SLURM_CONF name a readable slurm.conf, or scontrol be on PATH", "not known: neither slurm.conf nor scontrol could be read")
		if f.Kernel {
			c.Found += "; the limit of this job's cgroup is the kernel's, and was read"
		}
		return c
	}
	gather := "JobAcctGatherType not said"
	if e.Gather != "" {
		gather = "JobAcctGatherType=jobacct_gather/" + e.Gather
	}
	words := []string{gather}
	for _, w := range []struct {
		set  bool
		word string
	}{{e.OverMemoryKill, "OverMemoryKill"}, {e.UsePss, "UsePss"}, {e.NoShared, "NoShared"}, {e.NoFileCache, "no_file_cache"}} {
		if w.set {
			words = append(words, w.word)
		}
	}
	words = append(words, "ConstrainRAMSpace="+map[bool]string{true: "yes", false: "no"}[e.ConstrainRAM])
	if e.VSizeFactor > 0 {
		words = append(words, "VSizeFactor="+strconv.Itoa(e.VSizeFactor))
	}
	c.Found = strings.Join(words, ", ") + ": " + strings.TrimSuffix(e.String(), " ("+e.Source+")")
	if len(e.Open) > 0 && e.OverMemoryKill && e.Gather == "" {
		c = c.as(Limited, "have scontrol be on PATH", "%s; left open: %s", c.Found, strings.Join(e.Open, ", "))
	}
	return c
}

// runs is a line of a script that starts rsswarden run so that Slurm's signals
// reach it.
const runs = `^\s*(exec|srun)\s.*\brsswarden["']?\s+run\b`

// runLine is the number of the first such line, 0 for none.
func runLine(script string) int {
	n, line := 0, regexp.MustCompile(runs)
	for text := range strings.Lines(script) {
		if n++; line.MatchString(text) {
			return n
		}
	}
	return 0
}

// signals says whether Slurm's signals reach us: slurmstepd signals its own child, which
// may be a shell that waits for us.
func signals(f slurmFacts) Check {
	c := Check{Name: NameSignals, Status: OK, Source: fmt.Sprintf("/proc/%d/comm", f.ParentPID)}
	line := runLine(f.Text)
	switch {
	case f.Job.StepID != slurm.StepBatch:
		c.Found, c.Source = "srun passes Slurm's signals to every task of a step", "step "+f.Job.StepID
	case f.Parent == "":
		c = c.as(Limited, "write `exec rsswarden run -- …` as the last line of the batch script", "whoever started rsswarden cannot be read: whether Slurm's signals arrive is not known")
	case strings.HasPrefix(f.Parent, "slurmstepd"):
		c.Found = "started by slurmstepd: its signals arrive"
	case line > 0:
		c.Found = fmt.Sprintf("line %d of the batch script starts rsswarden run by exec or srun: Slurm's signals arrive", line)
		c.Source = f.Script
	default:
		c = c.as(Limited, "write `exec rsswarden run -- …` as the last line of the batch script, or `srun rsswarden run -- …`",
			"started by %s, which stands between Slurm and rsswarden: signals (scancel, --signal, the time limit's TERM) do not arrive", f.Parent)
	}
	return c
}
