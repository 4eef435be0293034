package hold

/*
#cgo LDFLAGS: -Wl,--wrap=sigaction -Wl,--wrap=pthread_create
#include "hold.h"
#include "at_once.h"
*/
import "C"

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AtOnceFlush is Options.Flush of a command that is started at once.
const AtOnceFlush = C.AT_ONCE_FLUSH * time.Millisecond

// parked is what C hands over, see park.c.
func parked() *C.struct_hold_parked { return &C.hold_parked }

// Forked says that this process is a fork of a parked holder: it may write nothing before
// [Start], which makes it the watcher, or [Leave].
func Forked() bool { return parked().role == C.HOLD_FORKED }

// Woken says that this process is a parked holder that has woken up: call [Resume].
func Woken() bool { return parked().role == C.HOLD_WOKEN }

// rehearsing says that this process has shown all that it is for: a Go runtime starts here.
func rehearsing() bool { return parked().role == C.HOLD_TRIAL }

// PID is that of the holder, in its fork too.
func PID() int {
	if Forked() {
		return int(parked().holder)
	}
	return os.Getpid()
}

// Setup is Options.Setup of the run that [Resume] goes on with. It is empty where the command
// was started at once, and the fork has not come that far.
func Setup() json.RawMessage {
	p := parked()
	if p.verdict == nil {
		return C.GoBytes(unsafe.Pointer(p.setup), p.setup_size)
	}
	if atomic.LoadInt32((*int32)(&p.verdict.ready)) == 0 {
		return nil
	}
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p.verdict), C.sizeof_struct_hold_verdict)), p.verdict.setup))
}

// RunDir is the run directory that a parked holder has made, empty where it has made none.
func RunDir() string { return C.GoString(parked().dir) }

// Begun says that the command was started at once, or that this is a woken holder.
func Begun() bool { return parked().begun > 0 || Woken() }

func readAnswer() (a C.struct_hold_answer, ok bool) {
	for {
		n, err := unix.Read(int(parked().link), unsafe.Slice((*byte)(unsafe.Pointer(&a)), C.sizeof_struct_hold_answer))
		if err != unix.EINTR {
			return a, err == nil && n == C.sizeof_struct_hold_answer
		}
	}
}

// Differs names what of the options the command was started without, empty where all is as C
// found it, or where the verdict is waited for.
func Differs(o Options) string {
	c := parked().child
	if !Forked() || !Begun() {
		return ""
	}
	switch {
	case !slices.Equal(texts(c.argv), o.Args):
		return "its arguments"
	case !slices.Equal(texts(c.paths), o.Paths):
		return "where it is looked for"
	case !slices.EqualFunc(texts(c.envp), o.Env, func(c, want string) bool { return shown(c) == want }):
		return "its environment"
	case (parked().subreaper != 0) != o.Subreaper:
		return "who takes its orphans"
	case o.Flush != AtOnceFlush || len(o.KeepFDs) > 0:
		return "what is waited for at its end"
	}
	return ""
}

// Leave ends this fork; its holder does everything itself then, as if it had not been parked.
func Leave() {
	if Begun() {
		os.Exit(1) // the holder wakes up
	}
	word := uint32(C.HOLD_LEAVE)
	unix.Sendto(int(parked().link), unsafe.Slice((*byte)(unsafe.Pointer(&word)), 4), unix.MSG_NOSIGNAL, nil)
	os.Exit(0)
}

// Start has the parked holder start the command, and makes this process, its fork, the
// watcher. It returns nil where the command was not started: [Leave] then. The command's
// arguments must be the last of ours.
func Start(o Options) *Link {
	if installed != nil || !setVerdict(&o) {
		return nil
	}
	fd, word := int(parked().link), uint32(C.HOLD_VERDICT)
	answer := C.struct_hold_answer{pid: C.int32_t(parked().begun), left_out: C.int32_t(parked().left_out)}
	if Begun() {
		atomic.StoreInt32((*int32)(&parked().verdict.ready), 1)
	} else {
		if unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&word)), 4), unix.MSG_NOSIGNAL, nil) != nil {
			return nil
		}
		var ok bool
		if answer, ok = readAnswer(); !ok {
			return nil
		}
	}
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(parked().verdict)), parked().room))
	closeInherited(o.KeepFDs)
	unix.Umask(unix.Umask(0) &^ unix.S_IRWXU) // as child in spawn.c does
	safeStderr()
	ignored, blocked := given()
	command, _ := readStat(int(answer.pid))
	l := &Link{fd: fd, messages: make(chan Message, messageRoom), begin: Begin{
		Setup: o.Setup,
		PID:   int(answer.pid), Start: command.start, Holder: PID(), Attempt: 1,
		Ignored: uint64(ignored), Blocked: uint64(blocked), LeftOut: answer.left_out != 0,
	}}
	if score := oomScore(PID()); score != "" {
		setOOMScore(os.Getpid(), aboveOOMScore(score))
	}
	l.open()
	return l
}

// setVerdict writes the verdict where the holder reads it, and says whether it fits there.
func setVerdict(o *Options) bool {
	room := unsafe.Slice((*byte)(unsafe.Pointer(parked().verdict)), parked().room)
	at := len(os.Args) - len(o.Args)
	if o.Flush == 0 {
		o.Flush = defaultFlush
	}
	if at < 2 || !slices.Equal(os.Args[at:], o.Args) || len(o.KeepFDs) > C.HOLD_KEEP || len(o.Setup) > maxSetup {
		return false
	}
	paths, env := o.Paths, o.Env
	if Begun() {
		paths, env = nil, nil // only the setup is asked for
	}
	v := parked().verdict
	*v = C.struct_hold_verdict{
		command: C.int32_t(at), npaths: C.int32_t(len(paths)), nenv: C.int32_t(len(env)), nkeep: C.int32_t(len(o.KeepFDs)),
		flush_ms: C.int32_t(o.Flush.Milliseconds()), setup: C.int32_t(len(o.Setup)),
	}
	for i, fd := range o.KeepFDs {
		v.keep[i] = C.int32_t(fd)
	}
	if o.Subreaper {
		v.subreaper = 1
	}
	places := map[string]int32{}
	for i, entry := range Environ() {
		places[entry] = int32(i)
	}
	indices, text := C.sizeof_struct_hold_verdict, C.sizeof_struct_hold_verdict+4*len(env)
	put := func(s string) bool {
		if text+len(s)+1 > len(room) {
			return false
		}
		copy(room[text:], s)
		text += len(s) + 1 // it was zero
		return true
	}
	if text > len(room) {
		return false
	}
	for _, path := range paths {
		if !put(path) {
			return false
		}
	}
	for i, entry := range env {
		place, ok := places[entry]
		if !ok {
			if place = -1; !put(entry) {
				return false
			}
		}
		*(*int32)(unsafe.Pointer(&room[indices+4*i])) = place
	}
	return put(string(o.Setup))
}

// closeInherited leaves this process the descriptors that a watcher has: what is
// close-on-exec is ours.
func closeInherited(keep []int) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		for _, fd := range []int{0, 1} {
			switch {
			case fd == 1 && slices.Contains(keep, 1):
			case fd == null:
				unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
			default:
				unix.Dup3(null, fd, 0)
			}
		}
		if null > 2 {
			unix.Close(null)
		}
	}
	names, _ := os.ReadDir("/proc/self/fd")
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		if err != nil || fd < 3 || slices.Contains(keep, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// Resume is [Run] for a holder that has woken up: of the options it needs those that are for
// after the command's start.
func Resume(o Options) Status {
	runtime.LockOSThread()
	p := parked()
	h := &holder{opts: o, self: os.Getpid(), parent: int(p.parent), pidfd: int(p.pidfd), signalSource: source}
	h.pid, h.leftOut = int(p.pid), p.left_out != 0
	h.brought, h.early, h.began = brought(), signalSet(p.early), uint64(p.began)
	h.override, h.witness.status = int(p.override), -1
	h.batch.c, h.batch.at = p.batch, uint64(p.read)
	var st Status
	broke := sound(func() {
		h.open()
		h.watcher.attempt, h.watcher.link, h.watcher.pid = 1, int(p.link), int(p.watcher)
		unix.SetNonblock(h.watcher.link, true)
		if h.watcher.pid != 0 {
			h.witness.open(h.watcher.pid)
			h.witness.draining(signalSet(p.draining))
		} else if p.ended == 0 {
			h.watcher.again() // it died where there was no room to wake up
		}
		sparing()
		if o.Slim != nil && h.watcher.requests != nil { // else there is no thread that would do it
			h.watcher.slim = time.Now() // it wakes where memory is short
		}
		if p.ended != 0 {
			h.finish(int32(p.code), int32(p.status))
			h.watcher.told = p.told != 0
			if p.end != 0 {
				h.deadline = time.Now().Add(time.Duration(int64(p.end) - int64(monotonic())))
			}
		}
		h.readSignals()
		st = h.loop()
	})
	if h.broke == nil {
		h.broke = broke
	}
	if h.broke != nil {
		return h.lastResort()
	}
	return st
}
