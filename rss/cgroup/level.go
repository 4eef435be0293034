// Package cgroup reads what memory cgroups limit and charge, v1 and v2, from
// the leaf a process is in up to the root: nothing is written
// and no privilege is needed.
//
// A limit may be on any level, seldom on the leaf, and is compared with the
// usage of the same level. Three numbers describe a level, and only the last
// kills:
//
//   - charged: memory.usage_in_bytes (v1), memory.current (v2), page cache
//     included;
//   - working set: charged less inactive_file;
//   - unreclaimable: charged less what reclaim can take back, which is file
//     cache and, on v2, reclaimable slab. tmpfs and shared memory stay in.
//
// Swap is read apart: [Level.SwapUsage] on v1 counts memory too.
//
// Dirty pages and pages under writeback count as reclaimable: at the limit the
// kernel writes them out and makes the allocation wait. A job that writes 900
// MB under a limit of 300 MB is at 97 % with them counted in, and sees no
// OOM kill. Writing may hang with the file system behind it; then so does the
// job.
//
// cgroup v1 does not say how much of its kernel memory is reclaimable: dentry
// and inode caches count as unreclaimable there, so the v1 number errs on the
// safe side.
//
// A charge lags behind by up to 64 pages for each CPU (MEMCG_CHARGE_BATCH).
// A missing file is normal: each reader says since which kernel it exists.
//
// The pids controller, which limits the number of tasks, is read in the same way:
// see [OpenTasks].
//
// A [Level] keeps descriptors of its counters and belongs to one goroutine.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Unlimited stands for no limit: "max" on v2, the sentinel
// 9223372036854771712 (less with larger pages) on v1.
const Unlimited = rss.Bytes(math.MaxUint64)

// Level is one directory of a hierarchy.
type Level struct {
	Version int    // 1 or 2
	Dir     string // the directory
	Name    string // its path below the mount: "/slurm/uid_1000/job_7"

	leaf bool
	// flat is set where, before Linux 5.11, memory.use_hierarchy is 0: the
	// level does not limit the levels below it.
	flat  bool
	below bool // memory.events is known to count what is below
	fixed *Limits
	kept  map[string]*counter // by name

	lag lag
}

// Limits is what a level allows, in bytes; [Unlimited] where it sets none.
type Limits struct {
	// Max is memory.limit_in_bytes (v1) or memory.max (v2).
	Max rss.Bytes
	// Swap is, on v1, memory.memsw.limit_in_bytes, a limit of memory and swap
	// together; on v2, memory.swap.max, of swap alone. Without the file (v1
	// without swap accounting, v2 before Linux 5.0 or without swap) Unlimited.
	Swap rss.Bytes
	// High is memory.high, v2 only: above it allocations are slowed down.
	High rss.Bytes
	// Swappable is false where memory.swappiness is 0, v1 only: its anonymous
	// memory is then never swapped out to keep a limit.
	Swappable bool
}

const statFile = "memory.stat"

// file names, v1 then v2.
var (
	usageFile = [3]string{1: "memory.usage_in_bytes", 2: "memory.current"}
	maxFile   = [3]string{1: "memory.limit_in_bytes", 2: "memory.max"}
	swapLimit = [3]string{1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
	swapUsage = [3]string{1: "memory.memsw.usage_in_bytes", 2: "memory.swap.current"}
)

// UsageFile, MaxFile, SwapFile, SwapUsageFile and File are the files a number
// was read from, for people.
func (l *Level) UsageFile() string     { return l.File(usageFile[l.Version]) }
func (l *Level) MaxFile() string       { return l.File(maxFile[l.Version]) }
func (l *Level) SwapFile() string      { return l.File(swapLimit[l.Version]) }
func (l *Level) SwapUsageFile() string { return l.File(swapUsage[l.Version]) }

// File is the path of a file of the level, "memory.stat".
func (l *Level) File(name string) string { return filepath.Join(l.Dir, name) }

// Limits reads what the level allows: Max, Swap and High again, the rest as it
// was at the first call. It fails only where the limit itself cannot be read;
// every other missing file is no limit.
func (l *Level) Limits() (Limits, error) {
	none := Limits{Max: Unlimited, Swap: Unlimited, High: Unlimited, Swappable: true}
	if l.fixed == nil {
		fixed, err := l.readFixed(none)
		if err != nil {
			return none, err
		}
		l.fixed = fixed
	}
	lim := *l.fixed
	var err error
	if lim.Max, err = l.Max(); err != nil {
		return none, err
	}
	if lim.Swap, err = l.optional(swapLimit[l.Version]); err != nil {
		return none, err
	}
	if l.Version == 2 {
		if lim.High, err = l.optional("memory.high"); err != nil {
			return none, err
		}
	}
	if l.flat {
		return none, nil
	}
	return lim, nil
}

// Max reads Limits.Max alone, by one pread of a kept descriptor.
func (l *Level) Max() (rss.Bytes, error) { return l.number(maxFile[l.Version]) }

// readFixed reads what is not worth reading again. Its error is a [shortage].
func (l *Level) readFixed(lim Limits) (*Limits, error) {
	if l.Version != 1 {
		return &lim, nil
	}
	defer l.Close() // these two stay as they are
	swappiness, err := l.number("memory.swappiness")
	if shortage(err) {
		return nil, err
	}
	lim.Swappable = err != nil || swappiness != 0
	hierarchy, err := l.number("memory.use_hierarchy")
	if shortage(err) {
		return nil, err
	}
	l.flat = err == nil && hierarchy == 0 && !l.leaf
	return &lim, nil
}

// Usage reads the charge, memory.usage_in_bytes or memory.current, by one
// pread of a kept descriptor: an upper bound of everything that can kill.
func (l *Level) Usage() (rss.Bytes, error) { return l.number(usageFile[l.Version]) }

// SwapUsage reads memory.memsw.usage_in_bytes on v1, which is memory and swap
// together, or memory.swap.current on v2, which is swap alone.
func (l *Level) SwapUsage() (rss.Bytes, error) { return l.number(swapUsage[l.Version]) }

// Close gives the descriptors back; they are opened again when needed.
func (l *Level) Close() {
	for _, c := range l.kept {
		c.close()
	}
}

// CloseRest is Close but for the files of the charge and of the limit.
func (l *Level) CloseRest() {
	for name, c := range l.kept {
		if name != usageFile[l.Version] && name != maxFile[l.Version] {
			c.close()
		}
	}
}

// pathless takes the path out of an error whose text names it already.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// number reads a file of one number, or "max", by one pread of a kept descriptor.
func (l *Level) number(name string) (rss.Bytes, error) {
	b, err := l.read(name)
	if err != nil {
		return Unlimited, err
	}
	n, err := parseLimit(b)
	if err != nil {
		return Unlimited, fmt.Errorf("cannot parse %s: %w", l.File(name), err)
	}
	return n, nil
}

// optional is number for a limit that the kernel need not have: what cannot be
// read is no limit, and what does not exist is not looked for again. The error is a
// [shortage].
func (l *Level) optional(name string) (rss.Bytes, error) {
	c := l.counter(name)
	if c.absent {
		return Unlimited, nil
	}
	n, err := l.number(name)
	c.absent = errors.Is(err, fs.ErrNotExist)
	if shortage(err) {
		return n, err
	}
	return n, nil
}

// counter is a file read again and again by one pread.
type counter struct {
	fd     int
	has    bool
	plain  bool // the kernel's own, of one number: reading it waits for nothing
	absent bool // the kernel has no such file
	buf    []byte
}

func (l *Level) counter(name string) *counter {
	c := l.kept[name]
	if c == nil {
		if l.kept == nil {
			l.kept = map[string]*counter{}
		}
		c = &counter{buf: make([]byte, 64)}
		l.kept[name] = c
	}
	return c
}

// read returns the contents, valid until the next call. A removed cgroup gives
// ENODEV, and the file is opened again once, in case the directory is back.
func (l *Level) read(name string) ([]byte, error) {
	c := l.counter(name)
	for again := true; ; again = false {
		if !c.has {
			fd, err := unix.Open(l.File(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", l.File(name), err)
			}
			c.fd, c.has, c.plain = fd, true, name != statFile && ofKernel(fd)
		}
		b, err := c.pread()
		if err == nil {
			return b, nil
		}
		c.close()
		if !again {
			return nil, fmt.Errorf("cannot read %s: %w", l.File(name), err)
		}
	}
}

// ofKernel says that a file is one of the kernel's cgroups, not of a copy or of lxcfs.
func ofKernel(fd int) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(fd, &s) == nil && (s.Type == unix.CGROUP_SUPER_MAGIC || s.Type == unix.CGROUP2_SUPER_MAGIC)
}

func (c *counter) pread() ([]byte, error) {
	for {
		n, err := c.once()
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n < len(c.buf):
			return c.buf[:n], nil
		case n > 64<<10:
			return nil, errMalformed
		default:
			c.buf = make([]byte, 4*len(c.buf))
		}
	}
}

// once is one pread(2). That of a plain counter is raw: the runtime need not prepare for it.
func (c *counter) once() (n int, err error) {
	if !c.plain {
		return unix.Pread(c.fd, c.buf, 0)
	}
	got, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(c.fd), uintptr(unsafe.Pointer(&c.buf[0])), uintptr(len(c.buf)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), nil
}

func (c *counter) close() {
	if c.has {
		unix.Close(c.fd)
		c.has = false
	}
}

// ErrNoPids says that a process is in no cgroup of the pids controller that can
// be seen.
var ErrNoPids = errors.New("no pids cgroup")

// Tasks is a limit on how many tasks, threads that is, a cgroup and all below it
// may have (Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst). A
// fork beyond it fails with EAGAIN, root's too.
type Tasks struct {
	Level   *Level
	Current uint64 // pids.current, zombies not reaped yet included
	Max     uint64 // pids.max
}

const tasksMax, tasksCurrent = "pids.max", "pids.current"

// Files are those of Current and of Max.
func (t *Tasks) Files() (current, most string) {
	return t.Level.File(tasksCurrent), t.Level.File(tasksMax)
}

// OpenTasks finds the pids cgroup of a process as [Open] finds that of memory;
// the error wraps [ErrNoPids] where there is none. A process may be moved
// later. The root of the hierarchy has no limit, and is no level.
func OpenTasks(proc, sys string, pid int) (*Path, error) {
	return resolve(proc, sys, pid, "pids", [3]string{1: tasksMax, 2: tasksMax}, ErrNoPids)
}

// Tasks appends the levels of [OpenTasks] that have a limit to dst, from the leaf up, and
// returns it. A level without one costs one pread of a kept descriptor, one with
// a limit two. The errors of levels that cannot be read are joined; the
// others are returned with them.
func (p *Path) Tasks(dst []Tasks) ([]Tasks, error) {
	var failed error
	for _, l := range p.Levels {
		most, err := l.number(tasksMax)
		if err == nil && most == Unlimited {
			continue
		}
		n, err2 := l.number(tasksCurrent)
		if err := errors.Join(err, err2); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		dst = append(dst, Tasks{Level: l, Current: uint64(n), Max: uint64(most)})
	}
	return dst, failed
}
