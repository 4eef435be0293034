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
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file keeps the tree in a cgroup of ours (--guard-cgroup), so that the
// kernel tells when its charge has grown by what is left before the next rung.
//
// What Slurm counts, run with Slurm 22.05.8 (guard_test.go of cmd/rsswarden):
// limits hold as before; MaxRSS and OverMemoryKill too, whether by
// jobacct_gather/linux, which reads processes, or by jobacct_gather/cgroup,
// whose total_rss includes what is below the task's directory. Two things do
// not:
//
//   - The kernel counts an OOM kill in the cgroup of the victim, and Slurm reads
//     its own directories alone: a job in which the kernel kills is FAILED by
//     signal 9, or whatever its script makes of that, and not OUT_OF_MEMORY.
//   - Slurm removes its directories at the end of a step and gives up where one
//     has another in it, with a word in the log at debug level alone. After a
//     SIGKILL to all of a job, as by OverMemoryKill or by scancel once KillWait
//     is over, nobody is left to remove ours: it stays with those of the task,
//     step and job, empty, until root removes them or the node starts anew.

const (
	// guardStep is the least growth to be told of. What grows may be page cache,
	// and then nothing follows.
	guardStep = 4 * rss.MiB
	// guardPause is the least time from one size that is armed to the next, and
	// so between two times that the kernel wakes us.
	guardPause = 50 * time.Millisecond
	// enterPatience bounds the rounds in which the tree is moved in while it
	// forks.
	enterPatience = 200 * time.Millisecond
	// leavePatience is how long the end waits for those who are just ending.
	leavePatience = 500 * time.Millisecond
)

// guardPart is the part that faults of this file are told under.
const guardPart = "guard-cgroup"

// guard is our cgroup and what is armed there. Only the loop uses it, but for
// what its goroutines are handed.
type guard struct {
	group  *cgroup.Guard
	passed *notifier
	sizes  chan rss.Bytes // to be armed; one that was not taken yet is replaced
	failed chan error     // the last that could not be
	armed  rss.Bytes      // the last of them, 0 once it was passed

	level cgroup.Level // of the limit that is watched
}

// guardPrefix begins the name of every cgroup of ours.
const guardPrefix = "rsswarden-"

// guardName is the name of the cgroup: the holder's PID tells it from that of
// another run in the same step, and brings a watcher that was started again
// back to it.
func guardName(holder int) string { return guardPrefix + strconv.Itoa(holder) }

// RemoveGuard removes what a watcher that is gone has left of --guard-cgroup:
// an empty cgroup keeps Slurm from removing that of the step. The caller is the
// holder, and its PID is holder.
func RemoveGuard(holder int) error {
	return cgroup.RemoveGuard("/proc", "/sys", holder, guardName(holder))
}

// enterGuard makes the cgroup, or finds it, and moves the tree in. The holder
// and we stay outside: what we use is not the tree's.
func (w *watcher) enterGuard() {
	if !w.Settings.GuardCgroup || w.holder == 0 {
		return
	}
	group, err := cgroup.MakeGuard(w.Proc, w.Sys, w.holder, guardName(w.holder))
	if err == nil {
		w.sweepGuards(filepath.Dir(group.Dir))
		w.guard, err = newGuard(group)
		if err == nil {
			err = w.moveIn(group)
		}
		if err != nil {
			w.leaveGuard()
		}
	}
	if err != nil {
		w.fault(guardPart, fmt.Errorf("%w; limits are looked at as often as without it", err))
	}
}

// sweepGuards removes the cgroups of runs that were killed in the same task: of a
// job that was requeued, Slurm takes the old directory again.
func (w *watcher) sweepGuards(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		holder, ours := strings.CutPrefix(e.Name(), guardPrefix)
		if _, err := strconv.Atoi(holder); err != nil || !ours {
			continue
		}
		if _, err := os.Stat(filepath.Join(w.Proc, holder)); errors.Is(err, fs.ErrNotExist) {
			_ = unix.Rmdir(filepath.Join(dir, e.Name())) // refused while somebody is in it
		}
	}
}

// newGuard starts what waits for the kernel.
func newGuard(group *cgroup.Guard) (*guard, error) {
	t, err := group.NewThreshold()
	g := &guard{
		group: group, passed: &notifier{wake: make(chan struct{}, 1)},
		sizes: make(chan rss.Bytes, 1), failed: make(chan error, 1),
	}
	if err != nil {
		return g, err
	}
	go func() {
		for t.Wait() == nil {
			g.passed.tell()
		}
	}()
	go func() {
		defer t.Close()
		for size := range g.sizes {
			began := time.Now()
			if err := t.Arm(size); err != nil {
				select {
				case g.failed <- err:
				default:
				}
			}
			time.Sleep(guardPause - time.Since(began))
		}
	}()
	return g, nil
}

// moveIn moves the tree in, round by round until nobody is outside: whoever
// forks while it is moved leaves a child behind.
func (w *watcher) moveIn(group *cgroup.Guard) error {
	refused := map[int]bool{}
	var first error
	for deadline := time.Now().Add(enterPatience); time.Now().Before(deadline); {
		inside, err := group.Procs()
		if err != nil {
			return err
		}
		procs, _, err := w.tree.Trees(w.roots())
		if err != nil {
			return err
		}
		moved := 0
		for i := range procs {
			pid := procs[i].ID.PID
			if _, in := slices.BinarySearch(inside, pid); in || refused[pid] || procs[i].State == 'Z' {
				continue
			}
			if err := group.Add(pid); err != nil {
				if pid == w.command.PID {
					return err
				}
				refused[pid] = true
				if first == nil {
					first = err
				}
				continue
			}
			moved++
		}
		if moved == 0 {
			break
		}
	}
	if first != nil {
		w.fault(guardPart, fmt.Errorf("%w; the kernel does not tell of its growth", first))
	}
	return nil
}

// leaveGuard removes the cgroup. Slurm removes the directory of the step only
// after that.
func (w *watcher) leaveGuard() {
	if w.guard == nil {
		return
	}
	close(w.guard.sizes)
	w.guard.level.Close()
	if err := w.guard.group.Remove(leavePatience); err != nil {
		w.fault(guardPart, fmt.Errorf("%w: what the command left behind runs in it, and Slurm cannot remove the directory of the step while it is there", err))
	}
	w.guard = nil
}

// woken is the channel to wait on; nil, which never yields, without a guard.
func (g *guard) woken() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.passed.woken()
}

// aim has the kernel wake us when the tree's charge has grown by what is left
// before the next rung of the limit that is watched. No use grows by more than
// the charge, but for page cache that turns into memory of the tree's own with
// the charge at the limit; ticks see that.
func (w *watcher) aim() {
	g := w.guard
	if g == nil {
		return
	}
	select {
	case err := <-g.failed:
		g.armed = 0
		w.fault(guardPart, err)
	default:
	}
	if w.watched < 0 {
		return
	}
	l := &w.readings[w.watched]
	if l.Accounting != event.AccountingCgroup || l.Level == "" || !strings.HasPrefix(g.group.Dir, l.Level+"/") {
		return
	}
	if g.level.Dir != l.Level {
		g.level.Close()
		g.level = cgroup.Level{Version: 1, Dir: l.Level}
	}
	// In this order what is charged in between makes it wake us early, not late.
	usage, err := g.group.Usage()
	if err != nil {
		return
	}
	charged, err := g.level.Usage()
	if err != nil {
		return
	}
	used := growing(l) + charged.Sub(l.Charged)
	size := usage + max(w.next(l, w.fullUsed).Sub(used), guardStep)
	if g.armed != 0 && g.armed <= size+guardStep {
		return // early enough
	}
	select {
	case <-g.sizes:
	default:
	}
	g.sizes <- size
	g.armed = size
}
