package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Identity is what a PID belongs to, as it was read at one moment.
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
	// Forked says that it has executed no program since its parent forked it.
	Forked bool
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
	i.ID.Start, i.Parent, i.Comm, i.State, i.Threads, i.Kernel, i.Forked = s.start, s.parent, string(s.comm), s.state, s.threads, s.kernel, s.forked
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

// maxParents bounds the walk of [Parents]: deeper than launchers nest, and an end to
// the circle that PIDs given out again during the walk could show.
const maxParents = 64

var errTooDeep = errors.New("too many parents")

// Parents yields the process pid, its parent, and so on up to the topmost process that
// proc shows. The walk ends early with an error, and the ID of the process it is about:
// [Vanished] where that has ended or is hidden from us, also where its PID is another's
// by now, which is then younger than its child.
func Parents(proc string, pid int) iter.Seq2[Identity, error] {
	return func(yield func(Identity, error) bool) {
		f := newFiles(proc)
		defer f.close()
		var child Identity
		for range maxParents {
			i, err := f.identity(pid)
			if err == nil && child.ID.PID != 0 && i.ID.Start > child.ID.Start {
				i, err = Identity{ID: rss.ProcID{PID: pid}}, fmt.Errorf("cannot read process %d: %w", pid, errGone)
			}
			if !yield(i, err) || err != nil || i.Parent == 0 {
				return
			}
			child, pid = i, i.Parent
		}
		yield(Identity{ID: rss.ProcID{PID: pid}}, fmt.Errorf("cannot read process %d: %w", pid, errTooDeep))
	}
}

// endPause is how often a process is looked at without a pidfd.
const endPause = 100 * time.Millisecond

// Ending waits for the end of a process that is not ours to wait for.
type Ending struct {
	proc string
	id   rss.ProcID
	fd   int // pidfd, -1 before Linux 5.3 or where pidfds are filtered
	gone bool
}

// Expect begins to wait for the end of a process, which it does not touch: it is neither
// traced nor waited for.
func Expect(proc string, id rss.ProcID) *Ending {
	e := &Ending{proc: proc, id: id, fd: -1}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == nil {
		e.fd = fd
	}
	// The descriptor holds on to the process that has the PID now; only then
	// does a look at the start time prove anything.
	e.gone = errors.Is(err, unix.ESRCH) || !Lives(proc, id)
	return e
}

// Wait returns whether the process has ended, as soon as it has, and after
// that time at the latest.
func (e *Ending) Wait(most time.Duration) bool {
	for end := time.Now().Add(most); !e.gone; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if e.fd < 0 {
			time.Sleep(min(endPause, left))
			e.gone = !Lives(e.proc, e.id)
			continue
		}
		p := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		switch {
		case err == nil && n > 0:
			e.gone = true
		case err != nil && err != unix.EINTR:
			e.Close()
		}
	}
	e.Close()
	return true
}

// Close stops waiting and gives the descriptor back.
func (e *Ending) Close() {
	if e.fd >= 0 {
		unix.Close(e.fd)
		e.fd = -1
	}
}
