package proctree

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// UserTasks counts the tasks of one user, which RLIMIT_NPROC is compared with:
// the threads of all processes whose real user it is, zombies included, by
// /proc/PID/status of every process that can be seen. It costs some 10 us a
// process: [NodeTasks].Total is an upper bound, so it need be asked only where
// that is near the limit.
//
// It is a lower bound itself: what lies in other PID namespaces, or is hidden by
// hidepid (proc(5)), is counted by the kernel and not here. Since Linux 5.14
// the kernel counts each user namespace for itself, and in those around it.
func (c *Counter) UserTasks(uid int) (Count, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	n, err := c.userTasks(uid)
	cost := threadTime() - began
	if err != nil {
		return Count{Cost: cost}, fmt.Errorf("cannot count the tasks of user %d: %w", uid, err)
	}
	return Count{N: n, Cost: cost}, nil
}

func (c *Counter) userTasks(uid int) (int, error) {
	pids, err := c.f.pids(nil)
	if err != nil {
		return 0, err
	}
	tasks := 0
	for _, pid := range pids {
		// What has ended, or may not be read, is not counted.
		b, err := c.f.read(pid, "status")
		if shortage(err) {
			return 0, err
		}
		if err != nil {
			continue
		}
		if u, err := parseTaskUser(b); err == nil && u.uid == uid {
			tasks += u.threads
		}
	}
	return tasks, nil
}

// TaskUser says whose tasks are counted when a process makes one more.
type TaskUser struct {
	UID int // real
	// Exempt says that RLIMIT_NPROC does not hold for the process: it is root's,
	// or has CAP_SYS_RESOURCE or CAP_SYS_ADMIN, outside of any user namespace
	// (copy_process in kernel/fork.c).
	Exempt bool
}

// TaskUserOf reads it from /proc/PID/status, and for a process that may be
// exempt from /proc/PID/uid_map (user_namespaces(7)). Its error is [Vanished]
// where there is no such PID.
func TaskUserOf(proc string, pid int) (TaskUser, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "status")
	if err != nil {
		return TaskUser{}, fmt.Errorf("cannot read status of process %d: %w", pid, err)
	}
	u, err := parseTaskUser(b)
	if err != nil {
		return TaskUser{}, fmt.Errorf("cannot parse status of process %d: %w", pid, err)
	}
	t := TaskUser{UID: u.uid}
	if u.uid == 0 || u.caps&(1<<capSysAdmin|1<<capSysResource) != 0 {
		b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "uid_map"), procfile.Small)
		if err != nil && !Vanished(err) {
			return t, fmt.Errorf("cannot read uid_map of process %d: %w", pid, err)
		}
		t.Exempt = err != nil || wholeMap(b) // a kernel without user namespaces has no such file
	}
	return t, nil
}

// Bits of include/uapi/linux/capability.h.
const capSysAdmin, capSysResource = 21, 24

// taskUser is what of /proc/PID/status says who is limited.
type taskUser struct {
	uid, threads int
	caps         uint64 // CapEff
}

// parseTaskUser reads Uid (real, effective, saved, file system), CapEff and
// Threads.
func parseTaskUser(b []byte) (taskUser, error) {
	var u taskUser
	const hasUID, hasThreads = 1, 2
	has := 0
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		w, _ := field(line[colon+1:])
		ok := true
		var n uint64
		switch string(line[:colon]) {
		case "Uid":
			n, ok = number(w)
			u.uid = int(n)
			has |= hasUID
		case "Threads":
			n, ok = number(w)
			u.threads = int(n)
			has |= hasThreads
		case "CapEff":
			u.caps, ok = hexadecimal(w)
		}
		if !ok || n > 1<<32 {
			return taskUser{}, errMalformed
		}
	}
	if has != hasUID|hasThreads {
		return taskUser{}, errMalformed
	}
	return u, nil
}

// wholeMap says that a uid_map maps every user to itself, as that of the initial
// user namespace does: "0 0 4294967295".
func wholeMap(b []byte) bool {
	for _, want := range []string{"0", "0", "4294967295"} {
		var w []byte
		w, b = field(b)
		if string(w) != want {
			return false
		}
	}
	return true
}
