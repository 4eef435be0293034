package hold

/*
#include <stdlib.h>
#include "hold.h"
*/
import "C"

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signalSet has bit n-1 for signal n, like the sets in /proc/PID/status.
type signalSet uint64

func setOf(sigs ...unix.Signal) (s signalSet) {
	for _, sig := range sigs {
		s |= bit(int(sig))
	}
	return s
}

func bit(sig int) signalSet { return 1 << (sig - 1) }

func (s signalSet) has(sig int) bool { return s&bit(sig) != 0 }

// roomForTasks says that the kernel's figures allow n more; whatever is in doubt does not.
func roomForTasks(n int) bool { return C.hold_tasks(C.int(n)) != 0 }

// canRest says that [Link.Rest] is there.
func canRest() bool { return C.HOLD_RESTS != 0 }

// rested are the link and the state of a watcher that was at rest, -1 of any other, and the
// lock of the lead where that has fallen to it, else 0. ended says that the leader was stopped,
// and that this process has ended it.
func rested() (link, state, lock int, ended bool) {
	r := &C.hold_rest
	if r.leads != 0 {
		lock = int(r.lock)
	}
	return int(r.link), int(r.state), lock, r.ended != 0
}

// execAlone executes this program in place of this process, with every signal blocked that can be.
func execAlone(args []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old C.uint64_t
	if e := C.hold_setmask(^C.uint64_t(0), &old); e != 0 {
		return syscall.Errno(e)
	}
	err := unix.Exec("/proc/self/exe", args, environ())
	C.hold_setmask(old, nil)
	return err
}

func active() bool { return C.hold_early.active != 0 }

// BySite says that the SPANK plugin of a site started this run, and not the user.
func BySite() bool { return C.hold_early.site != 0 }

// given returns the signals that the user had ignored and blocked.
func given() (ignored, blocked signalSet) {
	return signalSet(C.hold_early.ignored), signalSet(C.hold_early.blocked)
}

// brought returns the signals that were waiting when this program was executed.
func brought() signalSet { return signalSet(C.hold_early.pending) }

// Environ returns the environment as the user gave it, byte for byte and in its order.
// [os.Environ] leaves out entries that are empty or whose name is there twice.
func Environ() []string {
	env := environ()
	for i, v := range env {
		env[i] = shown(v)
	}
	return env
}

// environ is C's: early.c has hidden some of it from our runtime.
func environ() []string { return texts(C.environ) }

func texts(list **C.char) (all []string) {
	for p := list; p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		all = append(all, C.GoString(*p))
	}
	return all
}

// shown is an entry of the environment with the name that the user gave it.
func shown(entry string) string {
	if len(entry) < 2 || entry[0] != C.HOLD_HIDDEN {
		return entry
	}
	name, _, _ := strings.Cut(entry[1:], "=")
	switch name {
	case "ODEBUG", "OGC", "OMAXPROCS", "OMEMLIMIT", "OTRACEBACK":
		return "G" + entry[1:]
	}
	return entry
}

// child is a hold_child and its C memory.
type child struct {
	c    *C.struct_hold_child
	free []unsafe.Pointer
}

func newChild(paths, args, env []string) *child {
	c := &child{c: (*C.struct_hold_child)(C.calloc(1, C.sizeof_struct_hold_child))}
	c.free = append(c.free, unsafe.Pointer(c.c))
	c.c.paths = c.strs(paths)
	c.c.argv = c.strs(args)
	c.c.envp = c.strs(env)
	return c
}

// command is a child that starts as the user's command would bare.
func command(paths, args, env []string) *child {
	c := newChild(paths, args, env)
	shell := []string{"/bin/sh", ""} // the file that is to be read, see try_file
	if len(args) > 1 {
		shell = append(shell, args[1:]...)
	}
	c.c.shell = c.strs(shell)
	if given := Environ(); !slices.Equal(given, env) {
		c.c.given = c.strs(given)
	}
	return c
}

// watcherName is argv[0] and thereby the name of the watcher: a pkill by our
// name meets the holder alone, and so cannot look like a signal to the group.
const watcherName = "rss-watcher"

// ioHelperName is that of a process of [RunIOHelper].
const ioHelperName = "rss-aside"

// ownChild is a child that is ours, by that name.
func ownChild(name string, argv []string, link, null int, keep []int) *child {
	args := append([]string{name}, argv[1:]...)
	path := argv[0]
	if path != "/proc/self/exe" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
	}
	c := newChild([]string{path}, args, environ())
	c.c.watcher = 1
	c.c.link, c.c.null = C.int(link), C.int(null)
	keep = slices.Compact(slices.Sorted(slices.Values(keep)))
	if len(keep) > 0 {
		p := C.malloc(C.size_t(len(keep)) * C.sizeof_int)
		c.free = append(c.free, p)
		for i, fd := range keep {
			unsafe.Slice((*C.int)(p), len(keep))[i] = C.int(fd)
		}
		c.c.keep, c.c.nkeep = (*C.int)(p), C.int(len(keep))
	}
	return c
}

func (c *child) str(s string) *C.char {
	p := C.CString(s)
	c.free = append(c.free, unsafe.Pointer(p))
	return p
}

func (c *child) strs(s []string) **C.char {
	p := C.calloc(C.size_t(len(s)+1), C.size_t(unsafe.Sizeof(uintptr(0))))
	c.free = append(c.free, p)
	v := unsafe.Slice((**C.char)(p), len(s)+1)
	for i := range s {
		v[i] = c.str(s[i])
	}
	return (**C.char)(p)
}

func (c *child) close() {
	for _, p := range c.free {
		C.free(p)
	}
	c.free = nil
}

// spawn starts the child. noProcess is set when none could be made; exec when
// there was one, but it could not become the program (it is reaped).
func (c *child) spawn() (pid int, noProcess, exec syscall.Errno) {
	n := C.hold_spawn(c.c)
	if n < 0 {
		return 0, syscall.Errno(-n), 0
	}
	return int(n), 0, syscall.Errno(c.c.exec_errno)
}

// before returns what was pending when the child was made, and the time.
func (c *child) before() (pending signalSet, time uint64) {
	return signalSet(c.c.pending), uint64(c.c.time)
}

// leftOut says that the command has the user's environment, without our variables.
func (c *child) leftOut() bool { return c.c.left_out != 0 }

func execInPlace(paths, args, env []string) syscall.Errno {
	runtime.LockOSThread()
	c := command(paths, args, env)
	defer c.close()
	return syscall.Errno(C.hold_exec(c.c))
}

// installHandler has the holder's handler write to a descriptor; the watcher's, where it is -1,
// writes nowhere.
func installHandler(fd int) error {
	mode := C.int(C.HOLD_HANDLER_HOLDER)
	if fd < 0 {
		mode = C.HOLD_HANDLER_WATCHER
	}
	if e := C.hold_install(mode, C.int(fd)); e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

// stopSelf stops this process by sig if the command is stopped, and returns
// once it is continued.
func stopSelf(sig, command int) { C.hold_stop(C.int(sig), C.pid_t(command)) }

func dieBy(sig int) { C.hold_die(C.int(sig)) }

func forward(pidfd, pid int, a *arrival) syscall.Errno {
	return syscall.Errno(C.hold_forward(C.int(pidfd), C.pid_t(pid), C.int(a.signo), C.int(a.code),
		C.pid_t(a.pid), C.uid_t(a.uid), C.uint64_t(a.value)))
}

// parentOf returns the parent of a process, 0 when it is gone or cannot be read.
func parentOf(pid int) int { return int(C.hold_parent(C.pid_t(pid))) }

// batch is what one read of the signalfd gives, with the parents of the senders.
type batch struct {
	c  C.struct_hold_batch
	at uint64 // when a parked holder read it, CLOCK_MONOTONIC, ns; else 0
}

// read takes what the signalfd has, and says whether it had any.
func (b *batch) read(fd int) bool {
	C.hold_read(C.int(fd), &b.c)
	b.at = 0
	return b.size() > 0
}

func (b *batch) size() int { return int(b.c.size) / infoSize }

func (b *batch) arrival(i int) arrival {
	si := (*unix.SignalfdSiginfo)(unsafe.Pointer(&b.c.info[i]))
	return arrival{signo: int(si.Signo), code: si.Code, pid: int(si.Pid), uid: si.Uid, value: si.Ptr, parent: int(b.c.parent[i]), time: b.at}
}

// poll is poll(2); what the signalfd among fds has is read at once.
func (b *batch) poll(fds []unix.PollFd, timeout, signals int) error {
	b.c.size, b.at = 0, 0
	n := C.hold_poll((*C.struct_pollfd)(unsafe.Pointer(&fds[0])), C.int(len(fds)), C.int(timeout), C.int(signals), &b.c)
	if n < 0 {
		return syscall.Errno(-n)
	}
	return nil
}

// withMask calls f with the thread's signal mask changed: for the watcher,
// while it starts a program.
func withMask(m signalSet, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.hold_unmask_begin()
	defer C.hold_unmask_end()
	var old C.uint64_t
	if e := C.hold_setmask(C.uint64_t(m), &old); e != 0 {
		return syscall.Errno(e)
	}
	defer C.hold_setmask(old, nil)
	return f()
}

// maskThread has a thread of this watcher block what a witness must block.
func maskThread(tid int) { C.hold_mask_thread(C.pid_t(tid)) }

const infoSize = int(unsafe.Sizeof(unix.SignalfdSiginfo{}))

func pendingSignals() (s signalSet) {
	unix.RawSyscall(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&s)), unsafe.Sizeof(s), 0)
	return s
}

func takePending(sig int) {
	set, now := bit(sig), unix.Timespec{}
	unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(set), 0, 0)
}

// setName names the main thread, which is what ps and pkill look at.
func setName(name string) {
	os.WriteFile("/proc/self/comm", []byte(name), 0)
}
