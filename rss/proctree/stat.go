package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// errMalformed is wrapped by the errors of every parser here.
var errMalformed = errors.New("malformed")

// errGone says that a PID belongs to another process by now.
var errGone = fmt.Errorf("the process has ended: %w", syscall.ESRCH)

var pageSize = rss.Bytes(os.Getpagesize())

// stat is what the tree needs of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	comm    []byte // valid as long as the buffer that was parsed
	state   byte
	parent  int
	reaped  bool // a child has ended and was waited for
	kernel  bool // PF_KTHREAD of include/linux/sched.h: a thread of the kernel
	forked  bool // PF_FORKNOEXEC: it has executed nothing yet
	cpu     time.Duration
	threads int
	start   uint64 // clock ticks since boot
}

// parseStat reads one line of /proc/PID/stat. The command name may hold any
// byte, parentheses and newlines too, so it ends at the last ')'.
func parseStat(b []byte) (stat, error) {
	var s stat
	open, last := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || last < open {
		return s, errMalformed
	}
	s.comm = b[open+1 : last]
	var f [23][]byte // by number, from 3 on
	rest := b[last+1:]
	for i := 3; i < len(f); i++ {
		f[i], rest = field(rest)
	}
	if len(f[3]) != 1 {
		return s, errMalformed
	}
	ok := true
	num := func(i int) uint64 {
		n, is := number(f[i])
		ok = ok && is
		return n
	}
	const kthread, forknoexec = 0x00200000, 0x00000040
	const tick = time.Second / 100 // USER_HZ is 100 on every architecture that Go knows
	s.state, s.parent = f[3][0], int(num(4))
	s.kernel, s.forked = num(9)&kthread != 0, num(9)&forknoexec != 0
	s.reaped = num(11) > 0                                            // cminflt: nothing runs without a page fault
	s.cpu = time.Duration(num(14))*tick + time.Duration(num(15))*tick // utime, stime
	s.threads, s.start = int(num(20)), num(22)
	if !ok {
		return s, errMalformed
	}
	return s, nil
}

// statm is what the tree needs of /proc/PID/statm. shared is the resident part
// that is mapped from files or shared memory.
type statm struct{ virtual, resident, shared rss.Bytes }

// parseStatm reads /proc/PID/statm, whose fields are in pages: size, resident,
// shared, text, lib, data, dt.
func parseStatm(b []byte) (statm, error) {
	var pages [3]rss.Bytes
	for i := range pages {
		var w []byte
		w, b = field(b)
		n, ok := number(w)
		if !ok {
			return statm{}, errMalformed
		}
		pages[i] = rss.Bytes(n) * pageSize
	}
	return statm{pages[0], pages[1], pages[2]}, nil
}

// parseResident reads the second field of /proc/PID/statm alone.
func parseResident(b []byte) (rss.Bytes, error) {
	first := bytes.IndexByte(b, ' ')
	if first < 0 {
		return 0, errMalformed
	}
	w, _ := field(b[first:])
	n, ok := number(w)
	if !ok {
		return 0, errMalformed
	}
	return rss.Bytes(n) * pageSize, nil
}

// status is what the tree needs of /proc/PID/status, in bytes.
type status struct {
	rss, anon, file, shmem, virtual rss.Bytes
	locked, pinned, peak            rss.Bytes
	threads                         int
}

// parseStatus reads /proc/PID/status. A zombie and a kernel thread have no Vm
// lines: their sizes are 0. RssAnon, RssFile and RssShmem exist since Linux
// 4.5; without them all of VmRSS counts as anonymous. VmPin exists since 3.2.
func parseStatus(b []byte) (status, error) {
	var s status
	split, threads := false, false
	// The kernel prints Threads after all the sizes, and twice as much after it.
	for len(b) > 0 && !threads {
		var name, value []byte
		name, value, b = cutNamed(b)
		var to *rss.Bytes
		switch string(name) {
		case "VmSize":
			to = &s.virtual
		case "VmLck":
			to = &s.locked
		case "VmPin":
			to = &s.pinned
		case "VmHWM":
			to = &s.peak
		case "VmRSS":
			to = &s.rss
		case "RssAnon":
			to = &s.anon
			split = true
		case "RssFile":
			to = &s.file
		case "RssShmem":
			to = &s.shmem
		case "Threads":
			w, _ := field(value)
			n, ok := number(w)
			if !ok {
				return s, errMalformed
			}
			s.threads, threads = int(n), true
			continue
		default:
			continue
		}
		var ok bool
		if *to, ok = kilobytes(value); !ok {
			return s, errMalformed
		}
	}
	if !threads {
		return s, errMalformed
	}
	if !split {
		s.anon = s.rss
	}
	return s, nil
}

// parseSizes reads all sizes in /proc/PID/status, by their names.
func parseSizes(b []byte) (map[string]rss.Bytes, error) {
	all := map[string]rss.Bytes{}
	for len(b) > 0 {
		var name, value []byte
		name, value, b = cutNamed(b)
		if size, ok := kilobytes(value); ok {
			all[string(name)] = size
		}
	}
	return all, nil
}

// maxKB keeps sums from overflowing; no address space is as large.
const maxKB = 1 << 43

// kilobytes reads "   123 kB", as status, meminfo and smaps have sizes.
func kilobytes(b []byte) (rss.Bytes, bool) {
	w, unit := field(b)
	n, ok := number(w)
	unit, _ = field(unit)
	return rss.Bytes(n) * rss.KiB, ok && n <= maxKB && string(unit) == "kB"
}

// field returns the first word of b and what follows it. Words end at a space,
// a tab or a newline.
func field(b []byte) (word, rest []byte) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n') {
		i++
	}
	j := i
	for j < len(b) && b[j] != ' ' && b[j] != '\t' && b[j] != '\n' {
		j++
	}
	return b[i:j], b[j:]
}

func cutLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// cutNamed cuts off a line "Name: value"; name is empty where the line is another.
func cutNamed(b []byte) (name, value, rest []byte) {
	line, rest := cutLine(b)
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return nil, nil, rest
	}
	return line[:colon], line[colon+1:], rest
}

// namedLine returns the value of the line "name: value", empty where there is none.
func namedLine(b []byte, name string) []byte {
	for len(b) > 0 {
		var is, value []byte
		if is, value, b = cutNamed(b); string(is) == name {
			return value
		}
	}
	return nil
}

// sizeField is a line "Name: value kB" that is wanted, and where its value goes.
type sizeField struct {
	name string
	to   *rss.Bytes
}

// readSizes reads the wanted lines; there has the bit of each that was there.
func readSizes(b []byte, want []sizeField) (there uint, ok bool) {
	for len(b) > 0 {
		var name, value []byte
		name, value, b = cutNamed(b)
		for i, w := range want {
			if string(name) != w.name {
				continue
			}
			if *w.to, ok = kilobytes(value); !ok {
				return there, false
			}
			there |= 1 << i
			break
		}
	}
	return there, true
}

// number reads a decimal number. A minus sign is accepted and gives 0: some
// counters are printed signed and dip below 0 for a moment.
func number(w []byte) (uint64, bool) {
	negative := len(w) > 1 && w[0] == '-'
	if negative {
		w = w[1:]
	}
	if len(w) == 0 || len(w) > 20 {
		return 0, false
	}
	var n uint64
	for _, c := range w {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		n = 0
	}
	return n, true
}

// role knows a process by its name where the name is proof enough; what a
// trainer and a worker are, the loader hook tells.
func role(comm string) rss.Role {
	// The kernel cuts comm at 15 bytes.
	if strings.HasPrefix(comm, "torch_shm_manag") {
		return rss.RoleShmManager
	}
	return rss.RoleOther
}

// ProcOf reads one process, as [Reader.One] does.
func ProcOf(proc string, pid int) (rss.Proc, error) {
	r := New(proc)
	defer r.Close()
	return r.One(pid)
}

func readStatus[T any](proc string, pid int, parse func([]byte) (T, error)) (T, error) {
	f := newFiles(proc)
	defer f.close()
	return parsed(f, pid, "status", parse)
}

// parsed reads a file of a process. Its error is [Vanished] where there is no such PID.
func parsed[T any](f *files, pid int, name string, parse func([]byte) (T, error)) (v T, err error) {
	b, err := f.read(pid, name)
	if err != nil {
		return v, fmt.Errorf("cannot read %s of process %d: %w", name, pid, err)
	}
	if v, err = parse(b); err != nil {
		err = fmt.Errorf("cannot parse %s of process %d: %w", name, pid, err)
	}
	return v, err
}

// Cost is what one process costs the node, from its start until now.
type Cost struct {
	RSS, Anon   rss.Bytes     // VmRSS and RssAnon of /proc/PID/status
	PSS         rss.Bytes     // Pss of /proc/PID/smaps_rollup, 0 where it cannot be read
	Threads     int           // Threads of /proc/PID/status
	Descriptors int           // entries of /proc/PID/fd, 0 where they cannot be listed
	CPU         time.Duration // utime + stime of /proc/PID/stat, in ticks of 10 ms
	// Wakeups is voluntary_ctxt_switches of /proc/PID/task/TID/status over the
	// threads that live.
	Wakeups uint64
}

// CostOf reads the cost of a process. It reads smaps_rollup under that
// process's mmap_lock, so it is for small ones: ourselves.
func CostOf(proc string, pid int) (Cost, error) {
	var c Cost
	f := newFiles(proc)
	defer f.close()
	s, err := parsed(f, pid, "stat", parseStat)
	var u status
	if err == nil {
		u, err = parsed(f, pid, "status", parseStatus)
	}
	if err != nil {
		return Cost{}, fmt.Errorf("cannot read the cost of process %d: %w", pid, err)
	}
	c.CPU, c.RSS, c.Anon, c.Threads = s.cpu, u.rss, u.anon, u.threads
	if pss, err := New(proc).PSS(rss.ProcID{PID: pid}); err == nil {
		c.PSS = pss.PSS
	}
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if names, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		c.Descriptors = len(names)
	}
	t := newFiles(filepath.Join(dir, "task"))
	defer t.close()
	tids, err := t.pids(nil)
	if err != nil {
		return Cost{}, fmt.Errorf("cannot read the cost of process %d: %w", pid, err)
	}
	for _, tid := range tids {
		if b, err := t.read(tid, "status"); err == nil {
			w, _ := field(namedLine(b, "voluntary_ctxt_switches"))
			n, _ := number(w) // 0 where it is not there
			c.Wakeups += n
		}
	}
	return c, nil
}
