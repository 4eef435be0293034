package hold

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// infoSize is the size of one signalfd record.
const infoSize = int(unsafe.Sizeof(unix.SignalfdSiginfo{}))

// pendingSignals are those pending for this process or thread.
func pendingSignals() (s signalSet) {
	unix.RawSyscall(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&s)), unsafe.Sizeof(s), 0)
	return s
}

// takePending takes one pending copy of a signal, if there is one.
func takePending(sig int) {
	set, now := bit(sig), unix.Timespec{}
	unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(set), 0, 0)
}

// setName names the main thread, which is what ps and pkill look at.
func setName(name string) {
	os.WriteFile("/proc/self/comm", []byte(name), 0)
}
