package trim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// borrowed is a thread that makes system calls for us. The rest of its process
// stands still meanwhile.
//
// Its signals are not blocked for that: were we to die, they would stay so. One
// that comes has the thread stop before it enters our call, and is delivered on
// its own registers.
type borrowed struct {
	s *session
	t *thread
	// out: it stands outside of a system call, inside get_signal.
	out bool
	// inside is how long it was in the last call.
	inside time.Duration
}

// callPatience bounds a call. Dropping pages takes milliseconds; the call may wait
// for a reader of the process's mappings, and for a processor. Until it has
// come back the other threads must stand still, or what is dropped might be what
// they have put there: so this is the wait that may be long.
const callPatience = 30 * time.Second

// The kernel's words for a call that is to be made again (errno.h of the
// kernel); user space never sees them.
const (
	erestartSys    = 512
	erestartNoHand = 514
	erestartBlock  = 516
)

// interrupted says that a system call was left for a stop before its end.
func interrupted(result int64) bool {
	switch -result {
	case erestartSys, erestartNoHand, erestartBlock, int64(unix.EINTR):
		return true
	}
	return false
}

// lender picks the thread to borrow: one that sleeps in a call from which it may
// come back without a cause, were we to die in the middle.
func (s *session) lender() (*thread, Refusal) {
	var best *thread
	most := 0
	for i := range s.threads {
		t := &s.threads[i]
		if t.state != stopped || !t.sleeps {
			continue
		}
		// A thread's number was read from a list, and may have been given out again before we
		// attached to it.
		var st unix.Stat_t
		if n := t.regs.lends(); n > most && t.atCallInstruction() && unix.Fstatat(int(s.task.Fd()), strconv.Itoa(t.tid), &st, 0) == nil {
			best, most = t, n
		}
	}
	if best == nil {
		return nil, NoSleeper
	}
	return best, None
}

func (b *borrowed) advise(p Piece) Refusal {
	switch n, r := b.call(unix.SYS_MADVISE, p.Lo, p.Hi-p.Lo, unix.MADV_DONTNEED); {
	case r != None:
		return r
	case n == 0:
		return None
	case n == -int64(unix.EINVAL), n == -int64(unix.ENOMEM):
		return Changed // locked since, or unmapped
	case n == -int64(unix.EPERM), n == -int64(unix.ENOSYS):
		return Seccomp
	}
	return Failed
}

func (b *borrowed) call(nr, a1, a2, a3 uint64) (result int64, r Refusal) {
	regs := b.t.regs
	regs.make(nr, a1, a2, a3)
	if err := setRegisters(b.t.tid, &regs); err != nil {
		return 0, vanishedOrFailed(err)
	}
	if r := b.step(unix.PTRACE_SYSCALL); r != None {
		return 0, r
	}
	if b.out {
		return 0, Signalled
	}
	// It goes through the call and stops behind it: one turn less on a processor
	// than a stop at the call's end would take.
	if e := ptrace(unix.PTRACE_INTERRUPT, b.t.tid, 0, 0); e != 0 {
		return 0, vanishedOrFailed(e)
	}
	began := time.Now()
	if r := b.step(unix.PTRACE_CONT); r != None {
		return 0, r
	}
	b.inside = time.Since(began)
	if err := getRegisters(b.t.tid, &regs); err != nil {
		return 0, vanishedOrFailed(err)
	}
	_, result, _ = regs.call()
	return result, None
}

// step lets the thread run until it stops again.
func (b *borrowed) step(request int) Refusal {
	t := b.t
	if e := ptrace(request, t.tid, 0, 0); e != 0 {
		return vanishedOrFailed(e)
	}
	t.state = inCall
	var stop int32
	var end bool
	if !pollUntil(time.Now().Add(callPatience), func() bool { stop, end = b.s.news(t); return stop != 0 || end }) {
		return Slow
	}
	if end {
		t.state = gone
		return Vanished
	}
	t.state = stopped
	b.out = stop != syscallStop
	if b.out && stop>>8 == 0 {
		t.deliver = unix.Signal(stop)
	}
	return None
}

// end puts the thread back to where it was. It has to stand in get_signal then,
// as it does but where something has failed: on its way out of there the kernel
// looks at the registers again, and makes the call that the thread slept in once
// more.
func (b *borrowed) end() Refusal {
	t := b.t
	if t.state == stopped && !b.out {
		if e := ptrace(unix.PTRACE_INTERRUPT, t.tid, 0, 0); e != 0 {
			return vanishedOrFailed(e)
		}
		if r := b.step(unix.PTRACE_CONT); r != None {
			return r
		}
	}
	if t.state != stopped {
		return Vanished // or not to be brought back, which release sees
	}
	if err := setRegisters(t.tid, &t.regs); err != nil {
		return vanishedOrFailed(err)
	}
	return None
}

// maxMaps bounds how much of /proc/PID/maps is read while a process stands
// still, where the kernel cannot be asked for one mapping: some 10,000 lines.
const maxMaps = 1 << 20

// procmapQuery is the argument of PROCMAP_QUERY (linux/fs.h, Linux 6.11).
type procmapQuery struct {
	size, queryFlags, queryAddr       uint64
	start, end, flags, page, offset   uint64
	inode                             uint64
	major, minor, nameSize, buildSize uint32
	name, buildID                     uint64
}

const (
	procmapQueryRequest = 0xc0686611
	vmaReadable         = 1
	vmaWritable         = 2
	vmaExecutable       = 4
	vmaShared           = 8
)

// verify says whether what p was planned on is mapped there still: None, or why
// not. Call it while the process stands still; the file is opened again because
// an open one shows the address space that was there before an execve(2).
func (s *session) verify(p Piece) Refusal {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", s.id.PID))
	if errors.Is(err, fs.ErrPermission) {
		return Undumpable
	}
	if err != nil {
		return vanishedOrFailed(err)
	}
	defer maps.Close()
	if !s.listed {
		q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), queryAddr: p.Lo}
		switch _, _, e := unix.RawSyscall(unix.SYS_IOCTL, maps.Fd(), procmapQueryRequest, uintptr(unsafe.Pointer(&q))); e {
		case 0:
			const kind = vmaReadable | vmaWritable | vmaExecutable | vmaShared
			m := procfile.Mapping{Start: q.start, End: q.end, Offset: q.offset, Inode: q.inode, Dev: unix.Mkdev(q.major, q.minor)}
			return p.within(&m, q.flags&kind == vmaReadable|vmaShared)
		case unix.ENOENT:
			return Changed
		case unix.ENOTTY:
			s.listed = true
		case unix.ESRCH:
			return Vanished
		default:
			return Failed
		}
	}
	return p.search(maps)
}

// search reads the list of mappings up to the one that is meant.
func (p *Piece) search(maps io.Reader) Refusal {
	found := Changed
	bounded := io.LimitedReader{R: maps, N: maxMaps}
	err := eachMapping(&bounded, func(h header, ok bool) error {
		switch {
		case !ok:
			return errMalformed
		case h.End > p.Lo:
			found = p.within(&h.Mapping, h.readOnlyShared())
			return io.EOF
		}
		return nil
	})
	switch {
	case err == nil, err == io.EOF:
		return found
	case bounded.N <= 0:
		return Crowded
	}
	return vanishedOrFailed(err)
}

func (p *Piece) within(m *procfile.Mapping, readOnlyShared bool) Refusal {
	if m.Start <= p.Lo && p.Hi <= m.End && readOnlyShared && m.Dev == p.Dev && m.Inode == p.Inode &&
		m.Inode != 0 && m.Offset+(p.Lo-m.Start) == p.Offset {
		return None
	}
	return Changed
}
