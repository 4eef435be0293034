package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func limitsCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "limits",
		Category:  "Look",
		Usage:     "show every limit that can end this job",
		UsageText: "rsswarden limits [--json] [--pid PID]",
		Flags: []cli.Flag{
			jsonFlag(),
			colorFlag(p),
			&cli.StringFlag{Name: "pid", Usage: "those of the process `PID` and its descendants, not this shell's"},
		},
		ArgsUsage: examples(
			"rsswarden limits",
			"srun --jobid 118 --overlap rsswarden limits --json",
			"rsswarden limits --pid 4711",
		),
	}, func(c *cli.Context) error {
		pid, lookup := 0, p.lookup
		if c.IsSet("pid") {
			var err error
			if pid, err = parsePID("--pid ", c.String("pid"), "rsswarden limits --pid"); err != nil {
				return err
			}
			if _, err := proctree.Identify("/proc", pid); proctree.Vanished(err) {
				return usagef("name a process that runs, as ps shows it", "there is no process %d", pid)
			}
			// What we inherited may be of another job, or of none.
			lookup = population.EnvironmentOf("/proc", "/sys", pid, p.get("SLURM_CONF")).Lookup
		} else {
			pid = shellOrSelf("/proc", os.Getppid(), os.Getpid())
		}
		report, err := findLimits(lookup, pid)
		if err != nil {
			return err
		}
		return show(p, c.Bool("json"), report, report.print)
	})
}

// shellOrSelf is the process whose limits are printed if none is named: the shell that
// started us, or we ourselves if the parent is not a shell of the same job. slurmstepd,
// and the parent of a shell that called exec, may have other limits; a parent outside
// our PID namespace is 0.
func shellOrSelf(proc string, parent, self int) int {
	if own := proctree.Self(proc); own != os.Getpid() {
		return own // in another PID namespace; the parent's number there is not known
	}
	cgroups := func(pid int) ([]byte, error) {
		return procfile.Read(fmt.Sprintf("%s/%d/cgroup", proc, pid), procfile.Small)
	}
	theirs, err := cgroups(parent)
	if err != nil {
		return self
	}
	if ours, err := cgroups(self); err != nil || !bytes.Equal(ours, theirs) {
		return self
	}
	if comm, err := procfile.Read(fmt.Sprintf("%s/%d/comm", proc, parent), procfile.Small); err != nil || bytes.HasPrefix(comm, []byte("slurmstepd")) {
		return self
	}
	return parent
}

// limitsReport is what `limits --json` prints, limits in the order in which they would
// fire.
type limitsReport struct {
	PID int `json:"pid"`
	limit.Explanation
	Procs int      `json:"procs"`
	Gaps  rss.Gaps `json:"gaps"`
	// Works is what the default rules can do for each limit, where loader workers are there.
	Works []phrase.Works `json:"works"`
}

func findLimits(lookup func(string) (string, bool), pid int) (*limitsReport, error) {
	const proc, sys = "/proc", "/sys"
	if _, err := proctree.StartTime(proc, pid); err != nil {
		return nil, usagef("name a process that runs: rsswarden limits --pid PID", "%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	set, warnings := limit.Find(ctx, limit.Config{
		Proc: proc, Sys: sys, PID: pid, Lookup: lookup, Accounting: event.AccountingAuto,
		Slurm: slurm.Search{Lookup: lookup, Scontrol: slurm.Scontrol},
	})
	defer set.Close()
	sample, err := countedBy(set, proc, pid)
	if err != nil {
		return nil, err
	}
	limits := append(set.Read(sample), sides(proc, sys, pid, sample.Procs)...)
	return &limitsReport{
		PID: pid, Explanation: set.Explain(limits, append(warnings, set.Warnings()...)),
		Procs: len(sample.Procs), Gaps: sample.Gaps, Works: phrase.WhatWorks(limits, policy.Default(), nil),
	}, nil
}

// countedBy reads the processes that the limits count, without this one, and their PSS
// if a limit needs it. If there is no process pid the sample is empty.
func countedBy(set *limit.Set, proc string, pid int) (*rss.Sample, error) {
	s := &rss.Sample{At: time.Now()}
	start, err := proctree.StartTime(proc, pid)
	if err != nil {
		return s, err
	}
	tree := proctree.New(proc)
	procs, gaps, err := tree.Tree(rss.ProcID{PID: pid, Start: start})
	if err != nil {
		return s, err
	}
	extra, more, err := set.Extra(tree, procs)
	if err != nil {
		return s, err
	}
	self := func(p rss.Proc) bool { return p.ID.PID == os.Getpid() }
	s.Procs, s.Extra, s.Gaps = slices.DeleteFunc(procs, self), slices.DeleteFunc(extra, self), gaps.Add(more)
	if !set.NeedsPSS() {
		return s, nil
	}
	for _, list := range [][]rss.Proc{s.Procs, s.Extra} {
		for i := range list {
			ask := proctree.PSSAsk{ID: list[i].ID, Pieces: proctree.Lengthy(list[i].RSS)}
			if pss, err := ask.Read(tree); err == nil {
				list[i].PSS = &pss
			}
		}
	}
	return s, nil
}

// sides are the limits that are not on summed memory, as far as they can be read in
// time: maps waits for the process's mmap_lock, and a /dev/shm may hang.
func sides(proc, sys string, pid int, procs []rss.Proc) []event.Limit {
	const patience = 2 * time.Second
	each, _ := within(patience, func() []event.Limit { return counts.OfProcesses(proc, procs) })
	shared, _ := within(patience, func() []event.Limit {
		s := counts.NewShared(proc, sys, pid)
		defer s.Close()
		return s.Read(0, []int{pid}, true)
	})
	return append(each, shared...)
}

// print is for people. Users choose the names of cgroups in it: any byte but slash and
// newline.
func (r *limitsReport) print(w io.Writer, style text.Style) error {
	say := func(how text.Paint, head string, column int, body string) {
		for _, line := range text.Hang(head, column, oneLine(body), style.Columns()) {
			fmt.Fprintln(w, style.Paint(how, line))
		}
	}
	if !slices.ContainsFunc(r.Limits, func(l event.Limit) bool { return l.Name.Memory() }) {
		say("", "", 0, "nothing here limits memory")
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		line := fmt.Sprintf("%s (%s)", l.Name, l.Scope)
		if l.Limit > 0 {
			line += fmt.Sprintf(": %s of %s used, %s", l.Name.Amount(l.Used), l.Name.Amount(l.Limit), text.Percent(l.Ratio()))
			if l.PID != 0 {
				line += fmt.Sprintf(", in process %d", l.PID)
			}
			if l.UsedMax > l.Used {
				line += fmt.Sprintf(" (at most %v)", l.UsedMax)
			}
			if l.Age > 0 {
				line += fmt.Sprintf(" (PSS read up to %.0f s ago)", l.Age)
			}
		}
		say(text.Bold, fmt.Sprintf("%d.", i+1), 3, line)
		for _, row := range [][2]string{
			{"enforced by", l.Enforcer}, {"compares", string(l.Accounting)}, {"used from", l.UsedSource},
			{"limit from", l.LimitSource}, {"level", l.Level}, {"note", l.Note},
		} {
			if row[1] != "" {
				say(text.Dim, "   "+row[0], 16, row[1])
			}
		}
	}
	whose := fmt.Sprintf("process %d and its descendants (%d processes)", r.PID, r.Procs)
	switch {
	case r.PID == os.Getpid():
		whose = fmt.Sprintf("process %d, which is this one and does not count", r.PID)
	case r.Procs == 1:
		whose = fmt.Sprintf("process %d, which has no descendants", r.PID)
	}
	fmt.Fprintln(w)
	say("", "", 0, fmt.Sprintf("of %s. Looked at:", whose))
	for _, l := range r.Looked {
		say("", "  ", 3, l.Where+": "+l.Found)
	}
	for _, warning := range r.Warnings {
		say(text.Yellow, "warning:", 9, warning)
	}
	phrase.PrintWorks(w, r.Works, style.Columns())
	return nil
}
