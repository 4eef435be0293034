package supervisor

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

// With --oom-prefer workers the kernel's OOM killer chooses a loader worker first. A trainer
// that loses a worker raises an error and can still write a checkpoint. Slurm calls the job
// OUT_OF_MEMORY in either case.
//
// Raising oom_score_adj needs no privilege, and cannot be undone without one. So it is
// raised for workers alone, and only where a cgroup limits what they use: elsewhere the
// user's workers would die for other processes of the node.

// preferred is the oom_score_adj of a worker: as much as the whole limit counts
// for in the kernel's choice (oom_badness in mm/oom_kill.c), so that no trainer
// has more points whatever its size.
const preferred = 1000

// oomPrefer is the state of it.
type oomPrefer struct {
	on    bool
	asked map[rss.ProcID]bool // those who have it, or cannot
}

func newOOMPrefer(on bool) oomPrefer {
	return oomPrefer{on: on, asked: map[rss.ProcID]bool{}}
}

// prefer raises the scores of workers that are new.
func (w *watcher) prefer() {
	o := &w.oom
	if !o.on || w.Settings.DryRun {
		return
	}
	level := w.leafLimit()
	if level == nil {
		return
	}
	now := make(map[rss.ProcID]bool, len(o.asked))
	raised, before := 0, 0
	for i := range w.view.Sample.Procs {
		p := &w.view.Sample.Procs[i]
		if p.Role != rss.RoleWorker || p.State == 'Z' {
			continue
		}
		now[p.ID] = true
		if o.asked[p.ID] {
			continue
		}
		if start, err := proctree.StartTime(w.Proc, p.ID.PID); err == nil && start != p.ID.Start {
			continue // it has ended since: what cannot be undone is done to nobody else
		}
		was, err := raiseOOMScore(w.Proc, p.ID.PID, preferred)
		if err == nil && was >= preferred {
			continue // by a watcher before this one, or by itself
		}
		if err != nil {
			w.notRaised(p.ID.PID, was, err)
			continue
		}
		raised, before = raised+1, was
		w.tell.Put(event.NameCure, func(h event.Head) any {
			return event.Cure{Head: h, Remedy: event.RemedyOOMPrefer, PID: p.ID.PID, OK: true, Before: int64(was), After: preferred}
		})
	}
	o.asked = now
	if raised > 0 && w.tell.Once("cure", "oom-prefer") {
		text := fmt.Sprintf("--oom-prefer: should %s be full, the kernel kills a loader worker first (oom_score_adj %d, %d before)", level.Place(), preferred, before)
		if dir := w.killedWhole(level.Level); dir != "" {
			text += fmt.Sprintf("; but memory.oom.group is set in %s, and it kills all there at once", (&event.Limit{LimitSource: dir}).Place())
		}
		w.tell.Info(text)
	}
}

// notRaised tells that a score could not be raised, once for each cause: a worker
// that has ended is none, and a thousand workers have the same.
func (w *watcher) notRaised(pid, was int, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return
	}
	cause := err.Error()
	var errno unix.Errno
	if errors.As(err, &errno) {
		cause = errno.Error()
	}
	if w.tell.Once("oom-prefer", cause) {
		w.tell.Cured(w.now(), event.Cure{Remedy: event.RemedyOOMPrefer, PID: pid, Before: int64(was), After: int64(was), Reason: err.Error()},
			fmt.Sprintf("--oom-prefer: %v", err))
	}
}

// leafLimit is the memory limit of the innermost cgroup, nil where none limits.
func (w *watcher) leafLimit() *event.Limit {
	var leaf *event.Limit
	for i := range w.view.Limits {
		l := &w.view.Limits[i]
		if l.Name == event.LimitCgroup && l.Limit > 0 && (leaf == nil || len(l.Level) > len(leaf.Level)) {
			leaf = l
		}
	}
	return leaf
}

// killedWhole is the directory of the cgroup of which the kernel kills all at
// once where it meets the limit of level: of those from the command's own up to
// there the topmost that has memory.oom.group (cgroup v2). It is empty where none
// has.
func (w *watcher) killedWhole(level string) (whole string) {
	dirs := []string{level}
	if p, err := cgroup.Open(w.Proc, w.Sys, w.observe.Pop.Command.PID); err == nil {
		dirs = append(dirs, downFrom(level, p)...)
	}
	for _, dir := range dirs {
		b, err := procfile.Read(filepath.Join(dir, "memory.oom.group"), procfile.Small)
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			return dir
		}
	}
	return ""
}

// downFrom returns the directories below a level on the way to it, the topmost first.
func downFrom(level string, p *cgroup.Path) (dirs []string) {
	for _, l := range p.Levels {
		if strings.HasPrefix(l.Dir, level+"/") {
			dirs = append(dirs, l.Dir)
		}
	}
	slices.Reverse(dirs)
	return dirs
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
