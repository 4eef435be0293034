package trim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// MaxThreads is the most threads of a process that is touched: all of them
// stand still until the last has stopped.
const MaxThreads = 256

// mostDescriptors is how many open files are looked at; tests have fewer.
var mostDescriptors = 1 << 16

// CheckOptions names a process that might be trimmed, and us.
type CheckOptions struct {
	Proc   string // where procfs is mounted, "/proc"
	ID     rss.ProcID
	Tracer int                // PID of the process that will trace, 0 for this one
	Self   int                // PID of whoever the process must be alike in user and seccomp filters, 0 for this one
	Ours   func(pid int) bool // says that it is a process of rsswarden's; nil for none
}

// Check says whether a process may be touched, from what /proc shows of it:
// None, or why not and a detail for people. The process may change right after,
// so whoever traces looks again. It writes nothing and asks no file system but
// procfs: a network file system that hangs does not hang the caller.
func Check(o CheckOptions) (Refusal, string) {
	c := check{CheckOptions: o, dir: filepath.Join(o.Proc, strconv.Itoa(o.ID.PID))}
	for _, step := range []func() error{
		c.lives, c.ours, c.user, c.yama, c.traced, c.state, c.seccomp, c.dumpable, c.class, c.devices, c.crowd, c.lives,
	} {
		if err := step(); err != nil {
			return refusalOf(err), err.Error()
		}
	}
	return None, ""
}

// refused is an error that says which refusal it is.
type refused struct {
	refusal Refusal
	detail  string
}

func (r refused) Error() string { return r.detail }

func refuse(r Refusal, format string, args ...any) error {
	return refused{r, fmt.Sprintf(format, args...)}
}

func refusalOf(err error) Refusal {
	var r refused
	switch {
	case errors.As(err, &r):
		return r.refusal
	case errors.Is(err, errCrowded):
		return Crowded
	case errors.Is(err, fs.ErrPermission):
		return Undumpable
	}
	return vanishedOr(err, Failed)
}

// check is one look at one process.
type check struct {
	CheckOptions
	dir     string // /proc/PID
	self    standing
	leader  standing   // the first thread, whose files /proc/PID has
	threads []standing // of all threads, the first one's too
	crowded bool       // there are more
	mapped  string     // a device that is mapped
}

func (c *check) lives() error { return sameProcess(c.Proc, c.ID) }

func (c *check) ours() error {
	if c.Ours != nil && c.Ours(c.ID.PID) {
		return refuse(Ours, "process %d is rsswarden's", c.ID.PID)
	}
	return nil
}

// user reads how all threads stand, too: user, tracer and filters are each
// thread's own.
func (c *check) user() (err error) {
	self := "self"
	if c.Self != 0 {
		self = strconv.Itoa(c.Self)
	}
	if c.self, err = readStanding(filepath.Join(c.Proc, self, "status")); err != nil {
		return refuse(Failed, "%v", err)
	}
	if c.leader, err = readStanding(filepath.Join(c.dir, "status")); err != nil {
		return err
	}
	if err := c.list(); err != nil {
		return err
	}
	for _, t := range c.threads {
		for _, uid := range t.uids {
			if uid != c.self.uids[1] {
				return refuse(OtherUser, "user IDs %v, ours is %d", t.uids, c.self.uids[1])
			}
		}
	}
	return nil
}

func (c *check) list() error {
	dir, err := os.Open(filepath.Join(c.dir, "task"))
	if err != nil {
		return fmt.Errorf("cannot list the threads of process %d: %w", c.ID.PID, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(MaxThreads + 1)
	if err != nil && err != io.EOF {
		return fmt.Errorf("cannot list the threads of process %d: %w", c.ID.PID, err)
	}
	c.threads = append(c.threads, c.leader)
	for _, name := range names {
		if name == strconv.Itoa(c.ID.PID) {
			continue
		}
		if len(c.threads) == MaxThreads {
			c.crowded = true
			break
		}
		t, err := readStanding(filepath.Join(dir.Name(), name, "status"))
		if err != nil && refusalOf(err) == Vanished {
			continue // one thread has ended, which is no news of the process
		} else if err != nil {
			return err
		}
		if !t.ended() {
			c.threads = append(c.threads, t)
		}
	}
	return nil
}

func (c *check) traced() error {
	for _, t := range c.threads {
		if t.tracer != 0 {
			return refuse(Traced, "process %d traces it", t.tracer)
		}
	}
	return nil
}

func (c *check) state() error {
	if c.leader.ended() {
		return refuse(Vanished, "state %c", c.leader.state)
	}
	for _, t := range c.threads {
		switch t.state {
		case 'T':
			return refuse(Stopped, "thread %d is in state T", t.tid)
		case 't':
			return refuse(Traced, "thread %d is in state t", t.tid)
		case 'D':
			return refuse(Waiting, "thread %d is in state D", t.tid)
		}
	}
	return nil
}

// seccomp refuses a process that has filters which we have not: one might end
// it for a call that it never makes by itself. Filters are inherited and never
// lost, so that a descendant with as many as we have has the same.
func (c *check) seccomp() error {
	for _, t := range c.threads {
		switch {
		case t.seccomp == unix.SECCOMP_MODE_DISABLED:
		case t.seccomp != unix.SECCOMP_MODE_FILTER:
			return refuse(Seccomp, "thread %d is in seccomp mode %d", t.tid, t.seccomp)
		case t.filters < 0 || c.self.filters < 0:
			return refuse(Seccomp, "thread %d has seccomp filters, nobody knows how many", t.tid)
		case t.filters > c.self.filters:
			return refuse(Seccomp, "thread %d has %d seccomp filters, we have %d", t.tid, t.filters, c.self.filters)
		}
	}
	return nil
}

// dumpable refuses what the kernel would not let us look into, and what it
// would let root look into alone: the files of such a process are root's,
// though its directory is not (task_dump_owner of fs/proc/base.c). Of a process
// of root's it cannot be seen.
func (c *check) dumpable() error {
	name := filepath.Join(c.dir, "maps")
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("cannot look at maps of process %d: %w", c.ID.PID, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != c.leader.uids[1] {
		return refuse(Undumpable, "%s belongs to user %d", name, st.Uid)
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot open maps of process %d: %w", c.ID.PID, err)
	}
	defer f.Close()
	if c.mapped, err = mappedDevice(f); err != nil {
		return fmt.Errorf("cannot read maps of process %d: %w", c.ID.PID, err)
	}
	return nil
}

// class refuses a 32-bit program, by the size that its auxiliary vector gives
// for a program header (getauxval(3)): the program itself may lie on a network
// file system that hangs.
func (c *check) class() error {
	b, err := procfile.Read(filepath.Join(c.dir, "auxv"), procfile.Small)
	if err != nil {
		return fmt.Errorf("cannot read auxv of process %d: %w", c.ID.PID, err)
	}
	if is32Bit(b) {
		return refuse(Not64Bit, "a 32-bit program")
	}
	return nil
}

// devices refuses a process that drives a device directly: a stop of one rank
// is felt by all others, and its driver maps what looks like a file.
func (c *check) devices() error {
	if c.mapped != "" {
		return refuse(Device, "%s is mapped", c.mapped)
	}
	dir, err := os.Open(filepath.Join(c.dir, "fd"))
	if err != nil {
		return fmt.Errorf("cannot list the open files of process %d: %w", c.ID.PID, err)
	}
	defer dir.Close()
	for seen := 0; ; {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if seen++; seen > mostDescriptors {
				return refuse(Crowded, "more than %d open files", mostDescriptors)
			}
			to, err := os.Readlink(filepath.Join(dir.Name(), name))
			switch {
			case errors.Is(err, fs.ErrNotExist): // closed since
			case err != nil:
				return fmt.Errorf("cannot read an open file of process %d: %w", c.ID.PID, err)
			case isDevice([]byte(to)):
				return refuse(Device, "%s is open", to)
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot list the open files of process %d: %w", c.ID.PID, err)
		}
	}
}

func (c *check) crowd() error {
	if c.crowded || c.leader.count > MaxThreads {
		return refuse(Crowded, "%d threads", c.leader.count)
	}
	return nil
}

func isDevice(path []byte) bool {
	return bytes.HasPrefix(path, []byte("/dev/nvidia")) || string(path) == "/dev/kfd" ||
		bytes.HasPrefix(path, []byte("/dev/infiniband/"))
}
