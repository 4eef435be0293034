package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// jobID is a job as people write it: 46, 46_3 of an array, a SLUID; and a step behind it.
var jobID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]+(?:_[0-9]+)?|s[0-9A-Z]{13})(?:\.([0-9]+|batch|extern|interactive))?$`)
})

// interrupts yields the signals that ask for the end of the watch.
func interrupts() <-chan os.Signal {
	stop := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup, or a shell's background
			signal.Notify(stop, s)
		}
	}
	// A reader of our lines that has gone must not end the watch.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return stop
}

func dieBy(s syscall.Signal) {
	st := hold.Status{Signal: int(s)}
	st.Die()
}

// commandLine is the command line of a process for people, or its name if that cannot be
// read in time.
func commandLine(pid int) []string {
	line, _ := within(filePatience, func() string {
		b, _ := procfile.Read(fmt.Sprintf("/proc/%d/cmdline", pid), procfile.Cmdline)
		return strings.TrimRight(string(b), "\x00")
	})
	if line != "" {
		return clipped(strings.Split(line, "\x00"))
	}
	b, err := procfile.Read(fmt.Sprintf("/proc/%d/comm", pid), procfile.Small)
	if err != nil {
		return []string{"?"}
	}
	return []string{strings.TrimSpace(string(b))}
}

// sameUser says that a process has the same user as we.
func sameUser(pid int) bool {
	i, err := proctree.Identify("/proc", pid)
	return err == nil && i.UID == os.Geteuid()
}

// ownProcesses are the other processes of our user, by PID: those whose files in /proc are ours.
func ownProcesses() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		var st unix.Stat_t
		if err == nil && pid != os.Getpid() && unix.Stat("/proc/"+e.Name(), &st) == nil && int(st.Uid) == os.Geteuid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// parsePID reads a PID; flag and command are what the user typed before it.
func parsePID(flag, text, command string) (int, error) {
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return 0, usagef("give the number that ps shows: "+command+" 4711", "%s%q is not a PID", flag, text)
	}
	return pid, nil
}

// checkTarget says which process the user named, if it can be watched or trimmed; flag and
// command are what the user typed before its PID.
func checkTarget(flag, text, command string) (rss.ProcID, error) {
	const proc = "/proc"
	pid, err := parsePID(flag, text, command)
	if err != nil {
		return rss.ProcID{}, err
	}
	nameOne := "name a process that runs, as ps shows it: " + command + " 4711"
	i, err := proctree.Identify(proc, pid)
	switch {
	case proctree.Self(proc) != os.Getpid():
		return i.ID, usagef(mountProc, "%s: PID %d is another process here", otherPIDs, pid)
	case proctree.Vanished(err):
		return i.ID, usagef(nameOne, "there is no process %d", pid)
	case err != nil:
		return i.ID, usagef("its user hides it; run this as that user", "%v", err)
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

// initialPIDs says that we are in the node's own PID namespace. In a container process 1
// may be the training.
func initialPIDs() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err != nil || link == "pid:[4026531836]" // PROC_PID_INIT_INO of include/linux/proc_ns.h
}

// What reads /proc of another PID namespace reads other processes.
const (
	otherPIDs = "/proc shows the processes of another PID namespace"
	mountProc = "mount one for this namespace: unshare --mount-proc, or mount -t proc proc /proc"
)

// clipped shortens a command line for the watcher: the message to it is bounded.
func clipped(args []string) []string {
	const most = 16 << 10
	size := 0
	for i, a := range args {
		if size += len(a) + 1; size > most {
			return append(slices.Clone(args[:i]), "...")
		}
	}
	return args
}

// isRsswarden says that a process is a holder, a watcher or the like.
func isRsswarden(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	self, err := os.Readlink("/proc/self/exe")
	return err == nil && exe == self || strings.TrimSuffix(filepath.Base(exe), " (deleted)") == programName
}
