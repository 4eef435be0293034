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

// maxDescriptors is how many open files are looked at; tests have fewer.
var maxDescriptors = 1 << 16

// CheckOptions names a process that might be trimmed, and us.
type CheckOptions struct {
	Proc   string // where procfs is mounted, "/proc"
	ID     rss.ProcID
	Tracer int                // PID of the process that will trace, 0 for this one
	Self   int                // PID of the process whose user and seccomp filters it must have, 0 for this one
	Ours   func(pid int) bool // says that it is a process of rsswarden's; nil for none
}

// Check says whether a process may be touched, from what /proc shows of it:
// None, or why not and a detail for people. The process may change right after,
// so the tracer checks again. It writes nothing and asks no file system but
// procfs: a network file system that hangs does not hang the caller.
func Check(o CheckOptions) (Refusal, string) {
	c := check{CheckOptions: o, dir: filepath.Join(o.Proc, strconv.Itoa(o.ID.PID))}
	for _, step := range []func() error{
		c.lives, c.ours, c.user, c.yama, c.traced, c.state, c.seccomp, c.dumpable, c.devices, c.crowd, c.lives,
	} {
		if err := step(); err != nil {
			return refusalOf(err), err.Error()
		}
	}
	return None, ""
}

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
	return vanishedOrFailed(err)
}

type check struct {
	CheckOptions
	dir     string // /proc/PID
	self    threadStatus
	leader  threadStatus   // the first thread, whose files /proc/PID has
	threads []threadStatus // of all threads, the first one's too
	crowded bool           // there are more
	mapped  string         // a device that is mapped
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
	if c.self, err = readThreadStatus(filepath.Join(c.Proc, self, "status")); err != nil {
		return refuse(Failed, "%v", err)
	}
	if c.leader, err = readThreadStatus(filepath.Join(c.dir, "status")); err != nil {
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
		t, err := readThreadStatus(filepath.Join(dir.Name(), name, "status"))
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
			return refuse(Seccomp, "thread %d has seccomp filters, their number is unknown", t.tid)
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
			if seen++; seen > maxDescriptors {
				return refuse(Crowded, "more than %d open files", maxDescriptors)
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

// threadStatus is what /proc/PID/status and /proc/PID/task/TID/status say of one
// thread (proc_pid_status(5)).
type threadStatus struct {
	tid, parent, tracer int
	uids                [4]int // real, effective, saved, file system
	state               byte
	count               int // of threads of its process
	seccomp             int // mode, 0 also where the kernel has none
	filters             int // -1 where the kernel does not say, before 5.9
}

func (s threadStatus) ended() bool { return s.state == 'Z' || s.state == 'X' }

func readThreadStatus(name string) (threadStatus, error) {
	b, err := procfile.Read(name, procfile.Status)
	if err != nil {
		return threadStatus{}, fmt.Errorf("cannot read %s: %w", name, err)
	}
	s, ok := parseThreadStatus(b)
	if !ok {
		return s, fmt.Errorf("cannot read %s: %w", name, errMalformed)
	}
	return s, nil
}

func parseThreadStatus(b []byte) (s threadStatus, ok bool) {
	s.filters = -1
	numbers := map[string][]*int{
		"Pid": {&s.tid}, "PPid": {&s.parent}, "TracerPid": {&s.tracer}, "Threads": {&s.count},
		"Uid": {&s.uids[0], &s.uids[1], &s.uids[2], &s.uids[3]},
	}
	optional := map[string]*int{"Seccomp": &s.seccomp, "Seccomp_filters": &s.filters}
	found := 0
	for line := range bytes.Lines(b) {
		// A name is printed with its newlines escaped, so that no line is forged.
		key, value, _ := bytes.Cut(line, []byte(":"))
		to, needed := numbers[string(key)]
		if more := optional[string(key)]; more != nil {
			to = []*int{more}
		} else if string(key) == "State" {
			if value = bytes.TrimSpace(value); len(value) > 0 {
				s.state = value[0]
			}
		}
		if needed {
			found++
		}
		for _, to := range to {
			value = bytes.TrimLeft(value, " \t")
			end := max(bytes.IndexAny(value, " \t\n"), 0)
			n, ok := number(value[:end])
			if !ok {
				return s, false
			}
			*to, value = int(n), value[end:]
		}
	}
	return s, found == len(numbers) && s.state != 0
}

// maxAncestors bounds the way up from a process, which changes meanwhile.
const maxAncestors = 1024

// yama refuses what the security module forbids, to root as well: it is asked
// in the words of Documentation/admin-guide/LSM/Yama.rst.
func (c *check) yama() error {
	b, err := procfile.Read(filepath.Join(c.Proc, "sys/kernel/yama/ptrace_scope"), procfile.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	scope, ok := number(bytes.TrimSpace(b))
	switch {
	case err != nil:
		return refuse(Failed, "cannot read ptrace_scope: %v", err)
	case !ok:
		return refuse(Failed, "cannot read ptrace_scope: %q", b)
	case scope > 1:
		return refuse(Yama, "ptrace_scope is %d", scope)
	case scope == 1:
		return c.descends()
	}
	return nil
}

// descends refuses what the thread that traces has not started, itself or by
// others. An orphan counts where it was adopted.
func (c *check) descends() error {
	tracer := c.Tracer
	if tracer == 0 {
		tracer = os.Getpid()
	}
	at := c.ID.PID
	for range maxAncestors {
		s, err := readThreadStatus(filepath.Join(c.Proc, strconv.Itoa(at), "status"))
		switch {
		case err == nil:
			at = s.parent
		case at == c.ID.PID:
			return err
		case refusalOf(err) == Vanished:
			at = c.ID.PID // an ancestor has ended: others are by now
			continue
		default:
			return refuse(Failed, "%v", err)
		}
		if at == tracer {
			return nil
		}
		if at <= 1 {
			break
		}
	}
	return refuse(Stranger, "ptrace_scope is 1, and process %d does not descend from %d", c.ID.PID, tracer)
}

// mappedDevice returns the first device in /proc/PID/maps that forbids to touch
// its process, or nothing.
func mappedDevice(maps io.Reader) (device string, err error) {
	err = eachMapping(maps, func(h header, ok bool) error {
		switch {
		case !ok:
			return errMalformed
		case device == "" && isDevice(h.Path):
			device = string(h.Path)
		}
		return nil
	})
	return device, err
}

func number(b []byte) (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}
