package proctree

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

type Identity struct {
	ID      rss.ProcID
	Parent  int
	Comm    string
	State   byte // field 3 of /proc/PID/stat
	Threads int
	// Process is the PID of the process that a thread belongs to; the PID
	// itself for a process. /proc/TID can be opened although it is not listed.
	Process int
	// Kernel is set for a thread of the kernel.
	Kernel bool
	// UID is the effective user, which may signal it.
	UID int
}

// Self is the PID that this process has in proc, as its link self says: another than
// os.Getpid where proc shows another PID namespace, as after unshare(1) --pid without
// --mount-proc. A number from there is then no PID for a system call of ours. Without
// the link it is os.Getpid.
func Self(proc string) int {
	if name, err := os.Readlink(filepath.Join(proc, "self")); err == nil {
		if pid, err := strconv.Atoi(name); err == nil {
			return pid
		}
	}
	return os.Getpid()
}

// Ended says that the process has ended and only waits for its parent: a
// zombie, and no thread of it lives on.
func (i *Identity) Ended() bool {
	return i.State == 'X' || i.State == 'Z' && i.Threads <= 1
}

// Lives says that the process has not ended. One that cannot be read counts as living.
func Lives(proc string, id rss.ProcID) bool {
	i, err := Identify(proc, id.PID)
	if err != nil {
		return !Vanished(err)
	}
	return i.ID == id && !i.Ended()
}

// Identify reads what a PID belongs to, by /proc/PID/stat and status. Its
// error is [Vanished] where there is no such PID.
func Identify(proc string, pid int) (Identity, error) {
	f := newFiles(proc)
	defer f.close()
	return f.identity(pid)
}

func (f *files) identity(pid int) (Identity, error) {
	i := Identity{ID: rss.ProcID{PID: pid}}
	s, err := parsed(f, pid, "stat", parseStat)
	if err != nil {
		return i, err
	}
	i.ID.Start, i.Parent, i.Comm, i.State, i.Threads, i.Kernel = s.start, s.parent, string(s.comm), s.state, s.threads, s.kernel
	o, err := parsed(f, pid, "status", parseOwner)
	i.Process, i.UID = o.process, o.euid
	return i, err
}

// owner is what /proc/PID/status says of whose a process is.
type owner struct {
	process, threads int
	uid, euid        int    // real, effective
	caps             uint64 // CapEff
}

// parseOwner reads Tgid, Uid (real, effective, saved, file system), Threads and CapEff, which
// alone may be missing.
func parseOwner(b []byte) (o owner, err error) {
	uids := namedLine(b, "Uid")
	_, effective, _ := bytes.Cut(bytes.TrimLeft(uids, "\t "), []byte("\t"))
	for _, f := range []struct {
		value []byte
		to    *int
	}{{namedLine(b, "Tgid"), &o.process}, {uids, &o.uid}, {effective, &o.euid}, {namedLine(b, "Threads"), &o.threads}} {
		w, _ := field(f.value)
		n, ok := number(w)
		if !ok || n > 1<<32 {
			return o, errMalformed
		}
		*f.to = int(n)
	}
	if w, _ := field(namedLine(b, "CapEff")); len(w) > 0 {
		if o.caps, err = strconv.ParseUint(string(w), 16, 64); err != nil {
			return o, errMalformed
		}
	}
	return o, nil
}

// Environ returns the variables of a process that keep returns true for, as it
// was given them when it was executed, by /proc/PID/environ
// (proc_pid_environ(5)). Only the process's own user may read it. It waits for
// the process's mmap_lock, so it can hang.
func Environ(proc string, pid int, keep func(name string) bool) (map[string]string, error) {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "environ"), procfile.Environ)
	if err != nil {
		return nil, fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
	}
	return parseEnviron(b, keep), nil
}

// parseEnviron reads NAME=VALUE, each ended by NUL. Of a name that is there
// twice the first counts, as with getenv(3).
func parseEnviron(b []byte, keep func(name string) bool) map[string]string {
	env := map[string]string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || !keep(name) {
			continue
		}
		if _, twice := env[name]; !twice {
			env[name] = value
		}
	}
	return env
}

// CapIPCLock is CAP_IPC_LOCK of include/uapi/linux/capability.h: RLIMIT_MEMLOCK
// does not hold for a process that has it.
const CapIPCLock = 14

// Capable says whether a process has a capability outside of any user namespace,
// by CapEff of /proc/PID/status and by /proc/PID/uid_map. Its error is [Vanished]
// where there is no such PID.
func Capable(proc string, pid, capability int) (bool, error) {
	u, err := readStatus(proc, pid, parseOwner)
	if err != nil || u.caps&(1<<capability) == 0 {
		return false, err
	}
	return mapsAllUsers(proc, pid)
}
