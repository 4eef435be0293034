package proctree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

type Count struct {
	N    int
	Cost time.Duration // processor time of the counting
}

// Counter counts what the kernel limits by number in a process, in one goroutine.
// An error comes with the Cost of what was read without a result.
type Counter struct {
	proc string
	f    *files
	page []byte
}

// NewCounter returns a counter on the procfs mounted at proc.
func NewCounter(proc string) *Counter {
	return &Counter{proc: proc, f: newFiles(proc), page: make([]byte, os.Getpagesize())}
}

func (c *Counter) Close() { c.f.close() }

// Maps counts the memory mappings of a process: the lines of /proc/PID/maps
// (proc_pid_maps(5)) but for [vsyscall], which vm.max_map_count does not count
// either. The kernel holds the process's mmap_lock for one page of lines at a
// time, some 15 us, and waits for it: call it on a side goroutine. 30,000
// mappings take 6 to 9 ms in all.
func (c *Counter) Maps(id rss.ProcID) (Count, error) {
	return c.timed(id, "maps", func() (int, error) {
		fd, err := c.f.openFile(id.PID, "maps")
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		return countLines(func(b []byte) (int, error) { return syscall.Read(fd, b) }, c.page)
	})
}

// Descriptors counts the open descriptors of a process: st_size of
// /proc/PID/fd, which says so since Linux 6.2 in a few microseconds; else the
// entries of that directory, which cost about 1 us each.
func (c *Counter) Descriptors(id rss.ProcID) (Count, error) {
	return c.timed(id, "fd", func() (int, error) {
		if err := c.f.open(); err != nil {
			return 0, err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(c.f.dir.Fd()), strconv.Itoa(id.PID)+"/fd", &st, 0); err != nil {
			return 0, err
		}
		if c.f.real && st.Size > 0 {
			return int(st.Size), nil
		}
		fd, err := c.f.openFile(id.PID, "fd")
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		return countEntries(func(b []byte) (int, error) { return unix.Getdents(fd, b) }, c.page)
	})
}

// timed counts, tells what that costs, and makes sure that it was that process's.
func (c *Counter) timed(id rss.ProcID, file string, count func() (int, error)) (n Count, err error) {
	n.Cost, err = sure(c.proc, id, func() (err error) {
		n.N, err = count()
		return err
	})
	if err != nil {
		return Count{Cost: n.Cost}, fmt.Errorf("cannot count %s of process %d: %w", file, id.PID, err)
	}
	return n, nil
}

// MapLimit returns vm.max_map_count, by proc/sys/vm/max_map_count
// (proc_sys_vm(5)): how many mappings one process may have.
func MapLimit(proc string) (uint64, error) { return sysctl(proc, "max_map_count") }

// Overcommit returns vm.overcommit_memory: at 2 the kernel refuses memory beyond
// [MemInfo].CommitLimit (Documentation/mm/overcommit-accounting.rst).
func Overcommit(proc string) (uint64, error) { return sysctl(proc, "overcommit_memory") }

// sysctl reads a number below proc/sys/vm.
func sysctl(proc, file string) (uint64, error) {
	name := filepath.Join(proc, "sys", "vm", file)
	b, err := procfile.Read(name, procfile.Small)
	if err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", name, err)
	}
	n, ok := number(bytes.TrimSpace(b))
	if !ok {
		return 0, fmt.Errorf("cannot parse %s: %w", name, errMalformed)
	}
	return n, nil
}

var vsyscall = []byte(" [vsyscall]\n")

// countLines counts lines until the end. seq_file gives out one page of whole
// lines at a time at most, so a larger buffer would not save a call.
func countLines(read func([]byte) (int, error), buf []byte) (lines int, err error) {
	gate := false
	err = inPieces(read, buf, func(b []byte) error {
		lines += bytes.Count(b, []byte{'\n'})
		gate = bytes.HasSuffix(b, vsyscall)
		return nil
	})
	if gate {
		lines--
	}
	return lines, err
}

// countEntries counts the entries of a directory, "." and ".." aside, from
// struct linux_dirent64 records (getdents64(2)): see appendPIDs.
func countEntries(read func([]byte) (int, error), buf []byte) (entries int, err error) {
	const head = 19
	err = inPieces(read, buf, func(b []byte) error {
		for len(b) > head {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size <= head || size > len(b) {
				return errMalformed
			}
			if b[head] != '.' {
				entries++
			}
			b = b[size:]
		}
		return nil
	})
	return entries, err
}

// inPieces has take called with what each read gives, until the end.
func inPieces(read func([]byte) (int, error), buf []byte, take func([]byte) error) error {
	for {
		n, err := read(buf)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case n <= 0:
			return nil
		}
		if err := take(buf[:n]); err != nil {
			return err
		}
	}
}

// NodeTasks is how many tasks, which are threads of processes and of the kernel,
// the whole node has and may have, zombies included. A fork beyond either limit
// fails with EAGAIN, root's too (copy_process and alloc_pid in kernel/).
type NodeTasks struct {
	// Total is the second number of field 4 of /proc/loadavg: of all users, of
	// all PID namespaces. No user has more.
	Total int
	// ThreadsMax is kernel.threads-max, which Total is compared with.
	ThreadsMax uint64
	// PIDMax is kernel.pid_max, above every PID (proc_sys_kernel(5)): PIDs run
	// out a little before Total is as large, since a process group or session
	// keeps one in use. Since Linux 6.14 each PID namespace has its own.
	PIDMax uint64
	// Kernel says that Total is the kernel's own. A file laid over loadavg, as
	// lxcfs does, counts a container's: no upper bound of anything.
	Kernel bool
}

// Tasks reads the three files, some 2 us. All of them must be there.
func (n *Node) Tasks() (t NodeTasks, err error) {
	b, err := n.loadavg.read()
	if err != nil {
		return NodeTasks{}, err
	}
	total, ok := parseTotal(b)
	if !ok {
		return NodeTasks{}, fmt.Errorf("cannot parse %s: %w", n.loadavg.name, errMalformed)
	}
	t.Total, t.Kernel = total, onProcfs(n.loadavg.fd-1)
	most := [2]uint64{}
	for i, file := range []*keptFile{&n.threadsMax, &n.pidMax} {
		if b, err = file.read(); err != nil {
			return NodeTasks{}, err
		}
		if most[i], ok = number(bytes.TrimSpace(b)); !ok {
			return NodeTasks{}, fmt.Errorf("cannot parse %s: %w", file.name, errMalformed)
		}
	}
	t.ThreadsMax, t.PIDMax = most[0], most[1]
	return t, nil
}

// parseTotal reads the second number of the fourth field of /proc/loadavg
// (proc_loadavg(5)), "running/all".
func parseTotal(b []byte) (int, bool) {
	var w []byte
	for range 4 {
		w, b = field(b)
	}
	_, all, ok := bytes.Cut(w, []byte{'/'})
	n, ok2 := number(all)
	return int(n), ok && ok2 && n > 0 && n < 1<<31
}

// UserTasks counts the tasks of one user, which RLIMIT_NPROC is compared with:
// the threads of all processes whose real user it is, zombies included, by
// /proc/PID/status of every process that can be seen. It costs some 10 us a
// process: [NodeTasks].Total is an upper bound, so it need be asked only where
// that is near the limit.
//
// It is a lower bound itself: what lies in other PID namespaces, or is hidden by
// hidepid (proc(5)), is counted by the kernel and not here. Since Linux 5.14
// the kernel counts each user namespace for itself, and in those around it.
func (c *Counter) UserTasks(uid int) (n Count, err error) {
	n.Cost, err = timed(func() (err error) {
		n.N, err = c.userTasks(uid)
		return err
	})
	if err != nil {
		return Count{Cost: n.Cost}, fmt.Errorf("cannot count the tasks of user %d: %w", uid, err)
	}
	return n, nil
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
		if u, err := parseOwner(b); err == nil && u.uid == uid {
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
	u, err := readStatus(proc, pid, parseOwner)
	if err != nil {
		return TaskUser{}, err
	}
	t := TaskUser{UID: u.uid}
	if u.uid == 0 || u.caps&(1<<capSysAdmin|1<<capSysResource) != 0 {
		if t.Exempt, err = mapsAllUsers(proc, pid); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Bits of include/uapi/linux/capability.h.
const capSysAdmin, capSysResource = 21, 24

// mapsAllUsers says that a process is in the initial user namespace, or one that maps
// every user to itself as that does, by /proc/PID/uid_map (user_namespaces(7)): "0 0
// 4294967295". A kernel without user namespaces has no such file.
func mapsAllUsers(proc string, pid int) (bool, error) {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "uid_map"), procfile.Small)
	if Vanished(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read uid_map of process %d: %w", pid, err)
	}
	for _, want := range []string{"0", "0", "4294967295"} {
		var w []byte
		w, b = field(b)
		if string(w) != want {
			return false, nil
		}
	}
	return true, nil
}

// ResidentLimit returns the soft RLIMIT_RSS of a process in bytes, by
// /proc/PID/limits; RLIM_INFINITY, all ones, where there is none. Linux does
// not enforce it: slurmstepd leaves the step's memory there.
func ResidentLimit(proc string, pid int) (uint64, error) {
	fs, err := procfs.NewFS(proc)
	var p procfs.Proc
	if err == nil {
		p, err = fs.Proc(pid)
	}
	var l procfs.ProcLimits
	if err == nil {
		l, err = p.Limits()
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	return l.ResidentSet, nil
}

// Limits reads /proc/PID/limits (proc_pid_limits(5)) and the sizes in /proc/PID/status, where
// there are any, once. It needs no privilege.
// Its error is [Vanished] where there is no such PID.
func Limits(proc string, pid int) (rss.ResourceLimits, error) {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "limits"), procfile.Small)
	// The kernel gives an empty file of a process that is just being reaped.
	if err == nil && len(b) == 0 {
		err = errGone
	}
	if err != nil {
		return rss.ResourceLimits{}, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	l, err := parseResourceLimits(b)
	if err != nil {
		return rss.ResourceLimits{}, fmt.Errorf("cannot parse the limits of process %d: %w", pid, err)
	}
	l.Status, _ = readStatus(proc, pid, parseSizes)
	return l, nil
}

// parseResourceLimits reads /proc/PID/limits: a name of several words, the soft
// limit, the hard one, the unit. A line that is not there is no limit.
func parseResourceLimits(b []byte) (l rss.ResourceLimits, err error) {
	to := map[string]*uint64{
		"Max address space ": (*uint64)(&l.AddressSpace), "Max locked memory ": (*uint64)(&l.LockedMemory),
		"Max processes ": &l.Tasks, "Max open files ": &l.Descriptors,
	}
	for _, n := range to {
		*n = rss.Unlimited
	}
	err = errMalformed // until one was found
	for line := range bytes.Lines(b) {
		for name, n := range to {
			rest, ok := bytes.CutPrefix(line, []byte(name))
			if !ok {
				continue
			}
			err = nil
			if w, _ := field(rest); string(w) != "unlimited" {
				if *n, ok = number(w); !ok || w[0] == '-' {
					return l, errMalformed
				}
			}
		}
	}
	return l, err
}
