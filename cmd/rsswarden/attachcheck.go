package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// checkTarget says which process has the PID, if it is one that can be watched
// or trimmed. command is what the user typed before the PID, for hints.
func checkTarget(proc string, pid int, command string) (rss.ProcID, error) {
	nameOne := "name a process that runs, as ps shows it: " + command + " 4711"
	i, err := proctree.Identify(proc, pid)
	switch {
	case proctree.Self(proc) != os.Getpid():
		return i.ID, usagef(mountProc, "%s: PID %d is another process here", otherPIDs, pid)
	case proctree.Vanished(err):
		return i.ID, usagef(nameOne, "there is no process %d", pid)
	case err != nil:
		return i.ID, usagef("it belongs to somebody who hides it; be its user", "%v", err)
	case i.Process != pid:
		return i.ID, usagef(fmt.Sprintf("%s %d", command, i.Process), "%d is a thread of process %d", pid, i.Process)
	case i.Kernel:
		return i.ID, usagef(nameOne, "%d (%s) is a thread of the kernel", pid, i.Comm)
	case i.Ended():
		return i.ID, usagef(nameOne, "process %d (%s) has ended and only waits for its parent, %d", pid, i.Comm, i.Parent)
	case pid == os.Getpid():
		return i.ID, usagef(nameOne, "process %d is this rsswarden itself", pid)
	case pid == 1 && initialPIDs():
		return i.ID, usagef("name the process of the job; rsswarden limits --pid 1 shows the node's limits",
			"process 1 is the node's init: all processes descend from it")
	}
	return i.ID, nil
}

// initialPIDs says that we are in the node's own PID namespace and not in a
// container, whose first process may be the training.
func initialPIDs() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err != nil || link == "pid:[4026531836]" // PROC_PID_INIT_INO of include/linux/proc_ns.h
}

// cannotDo says what cannot be done to a process that somebody else started,
// and why.
func cannotDo(proc string, pid int, job, noHook string, env *supervisor.Environment) []string {
	var all []string
	if job == "" {
		all = append(all,
			"rsswarden did not start it: its exit status will not be known, and its orphans are not brought back",
			"what had left its tree by now, orphaned, is not counted with it")
	} else {
		all = append(all, "rsswarden did not start it: its exit status will not be known")
	}
	why := noHook
	if why == hookless {
		why += "; by hand, once, rsswarden trim does the one by ptrace"
	}
	all = append(all, "workers of PyTorch loaders are neither trimmed nor recycled: "+why)
	all = append(all, "who trains is told by LOCAL_RANK and RANK in the environment alone: a signal= rule asks those, else "+asked(job))
	i, err := proctree.Identify(proc, pid)
	if err != nil {
		return all
	}
	who := fmt.Sprintf("process %d belongs to %s", pid, userName(i.UID))
	switch {
	case errors.Is(env.Err, supervisor.ErrNotBelieved) && os.Geteuid() == 0:
		all = append(all, "root believes no process's environment: the Slurm job is known from cgroups and slurmstepd alone, if at all")
	case env.Err != nil:
		all = append(all, who+", its environment cannot be read: its Slurm job is known from its cgroup alone, if at all")
	}
	if f, err := os.Open(fmt.Sprintf("%s/%d/smaps_rollup", proc, pid)); errors.Is(err, fs.ErrPermission) {
		all = append(all, who+", its PSS cannot be read: a limit on PSS is known only to lie between 0 and RSS")
	} else if err == nil {
		f.Close()
	}
	if err := unix.Kill(pid, 0); errors.Is(err, syscall.EPERM) {
		all = append(all, who+": signal, stop and worker signals will be refused")
	}
	return all
}

func asked(job string) string {
	if job != "" {
		return "every task"
	}
	return "the process itself"
}

const hookless = "no loader hook of ours is in it"

// noHook says why no loader in the process can be asked for anything by us.
func noHook(proc string, pid int) string {
	var dir string
	if i, err := proctree.Identify(proc, pid); err == nil && i.UID == os.Geteuid() {
		vars, _ := proctree.Environ(proc, pid, func(name string) bool { return name == loader.EnvDir })
		dir = vars[loader.EnvDir]
	}
	if line := commandLine(pid); filepath.Base(line[0]) == programName && len(line) > 1 && line[1] == "run" {
		return fmt.Sprintf("process %d is an rsswarden, which does that for what it started; two must not", pid)
	}
	if dir == "" {
		return hookless
	}
	owner, lives, err := loader.Owner(dir)
	switch {
	case err != nil:
		return "it was started under rsswarden, and its run directory is of no use: " + err.Error()
	case lives:
		return fmt.Sprintf("rsswarden (process %d) started it and does that; two must not", owner.PID)
	}
	return fmt.Sprintf("the rsswarden that started it (process %d) has ended, and its run directory with it", owner.PID)
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", uid)
}
