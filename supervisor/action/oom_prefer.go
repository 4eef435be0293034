package action

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// With --oom-prefer workers, and where dead workers are replaced (--revive), the kernel's OOM
// killer chooses a loader worker first. A trainer that loses one for good raises an error and
// can still write a checkpoint. Slurm calls the job OUT_OF_MEMORY in either case.
//
// Raising oom_score_adj needs no privilege, and cannot be undone without one. So it is
// raised for workers alone, and only where a cgroup limits what they use: elsewhere the
// user's workers would die for other processes of the node.

// preferred is the oom_score_adj of a worker: as much as the whole limit counts
// for in the kernel's choice (oom_badness in mm/oom_kill.c), so that no trainer
// has more points whatever its size.
const preferred = 1000

// OOMPrefer raises the scores of workers that are new, with each full read.
type OOMPrefer struct {
	*Env
	asked map[rss.ProcID]bool // those who have it, or cannot
}

// Raise does so where a cgroup limits the workers, to less than the node has.
func (a *OOMPrefer) Raise() {
	if a.Settings.DryRun {
		return
	}
	reviving := a.reviving()
	if !a.Settings.OOMPrefer && len(reviving) == 0 {
		return
	}
	level := a.LeafLimit()
	if level == nil || slices.ContainsFunc(a.View.Limits, func(l event.Limit) bool { return l.Name == event.LimitNode }) {
		return
	}
	now := make(map[rss.ProcID]bool, len(a.asked))
	raised, before := 0, 0
	for i := range a.View.Sample.Procs {
		p := &a.View.Sample.Procs[i]
		if !p.Role.IsWorker() || p.State == 'Z' || !a.Settings.OOMPrefer && !reviving[p.ID.PID] {
			continue
		}
		now[p.ID] = true
		if a.asked[p.ID] {
			continue
		}
		if start, err := proctree.StartTime(a.Proc, p.ID.PID); err == nil && start != p.ID.Start {
			continue // it has ended since; another process with its PID must not be changed
		}
		was, err := raiseOOMScore(a.Proc, p.ID.PID, preferred)
		if err == nil && was >= preferred {
			continue // by a watcher before this one, or by itself
		}
		if err != nil {
			a.notRaised(p.ID.PID, was, err)
			continue
		}
		raised, before = raised+1, was
		a.Tell.Put(event.NameCure, func(h event.Head) any {
			return event.Cure{Head: h, Remedy: event.RemedyOOMPrefer, PID: p.ID.PID, OK: true, Before: int64(was), After: preferred}
		})
	}
	a.asked = now
	if raised > 0 && a.Settings.OOMPrefer && a.Tell.Once("cure", "oom-prefer") {
		text := fmt.Sprintf("--oom-prefer: workers are killed first (oom_score_adj %d, was %d)", preferred, before)
		if dir := a.killedWhole(level.Level); dir != "" {
			text += fmt.Sprintf("; but memory.oom.group in %s kills all at once", (&event.Limit{LimitSource: dir}).Place())
		}
		a.Tell.Info(text)
	}
}

// reviving are the workers whose place another takes where they die.
func (a *OOMPrefer) reviving() map[int]bool {
	pids := map[int]bool{}
	for _, t := range a.Workers.Trainers() {
		for _, d := range t.Loaders {
			for _, pid := range d.Workers {
				pids[pid] = d.Revives
			}
		}
	}
	return pids
}

// notRaised tells that a score could not be raised, once for each cause: a worker
// that has ended is none, and a thousand workers have the same.
func (a *OOMPrefer) notRaised(pid, was int, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return
	}
	cause := err.Error()
	var errno unix.Errno
	if errors.As(err, &errno) {
		cause = errno.Error()
	}
	if a.Tell.Once("oom-prefer", cause) {
		option := "--revive"
		if a.Settings.OOMPrefer {
			option = "--oom-prefer"
		}
		a.Tell.Cured(a.Now(), event.Cure{Remedy: event.RemedyOOMPrefer, PID: pid, Before: int64(was), After: int64(was), Reason: err.Error()},
			fmt.Sprintf("%s: %v", option, err))
	}
}

// killedWhole is the directory of the cgroup of which the kernel kills all at
// once where it meets the limit of level: of those from the command's own up to
// there the topmost that has memory.oom.group (cgroup v2). It is empty where none
// has.
func (a *OOMPrefer) killedWhole(level string) (whole string) {
	dirs := []string{level}
	if p, err := cgroup.Open(a.Proc, a.Sys, a.Pop.Command.PID); err == nil {
		for _, l := range slices.Backward(p.Levels) {
			if strings.HasPrefix(l.Dir, level+"/") {
				dirs = append(dirs, l.Dir)
			}
		}
	}
	for _, dir := range dirs {
		b, err := procfile.Read(filepath.Join(dir, "memory.oom.group"), procfile.Small)
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			return dir
		}
	}
	return ""
}

// raiseOOMScore raises /proc/PID/oom_score_adj (proc_pid_oom_score_adj(5)) to
// score, unless it is as high already, and returns what it was.
func raiseOOMScore(proc string, pid, score int) (was int, err error) {
	name := filepath.Join(proc, strconv.Itoa(pid), "oom_score_adj")
	b, err := procfile.Read(name, procfile.Small)
	if err != nil {
		return 0, fmt.Errorf("cannot read oom_score_adj of process %d: %w", pid, err)
	}
	if was, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
		return 0, fmt.Errorf("cannot parse oom_score_adj of process %d: %w", pid, err)
	}
	if was >= score {
		return was, nil
	}
	if err := os.WriteFile(name, []byte(strconv.Itoa(score)), 0); err != nil {
		return was, fmt.Errorf("cannot raise oom_score_adj of process %d: %w", pid, err)
	}
	return was, nil
}
