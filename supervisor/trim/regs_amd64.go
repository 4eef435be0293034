package trim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const supported = true

// registers are those of a 64-bit thread, struct user_regs_struct.
type registers struct{ unix.PtraceRegs }

const codeSegment64 = 0x33 // __USER_CS

func getRegisters(tid int, r *registers) error {
	if e := ptrace(unix.PTRACE_GETREGS, tid, 0, uintptr(unsafe.Pointer(r))); e != 0 {
		return e
	}
	return nil
}

func setRegisters(tid int, r *registers) error {
	if e := ptrace(unix.PTRACE_SETREGS, tid, 0, uintptr(unsafe.Pointer(r))); e != 0 {
		return e
	}
	return nil
}

func (r *registers) is64() bool { return r.Cs == codeSegment64 }

// call returns the system call that the thread was in, and what it would return.
func (r *registers) call() (nr uint64, result int64, in bool) {
	return r.Orig_rax, int64(r.Rax), int64(r.Orig_rax) >= 0
}

// remake has the call made again, unless a signal handler runs first.
func (r *registers) remake() { r.Rax = ^uint64(erestartNoHand) + 1 }

// make has the thread make another call where it made its own.
func (r *registers) make(nr, a1, a2, a3 uint64) {
	r.Rip -= 2
	r.Rax, r.Orig_rax = nr, ^uint64(0)
	r.Rdi, r.Rsi, r.Rdx = a1, a2, a3
}

// atCallInstruction says that the thread stands behind a SYSCALL instruction.
func (t *thread) atCallInstruction() bool {
	var word uint64
	e := ptrace(unix.PTRACE_PEEKTEXT, t.tid, uintptr(t.regs.Rip-2), uintptr(unsafe.Pointer(&word)))
	return e == 0 && word&0xffff == 0x050f
}

// lends says how well a call lends its thread, 0 for not at all. It may come back
// as if woken without a cause, and, were we to die in the middle, with the
// registers of our call.
//
// Of futexes the waits for a condition or a semaphore are meant: behind them the C
// library looks at nothing but the result. Behind the wait for a mutex, which is
// for the value 2, it goes on with the address in the register that it passed.
// restart_syscall is what futex, poll and the sleeps with a time go on as after one
// stop (ERESTART_RESTARTBLOCK), with their registers.
func (r *registers) lends() int {
	const wait, waitBitset, command = 0, 9, 127
	switch nr, _, _ := r.call(); {
	case waits[nr]:
		return 2
	case nr == unix.SYS_RESTART_SYSCALL && !(r.Rsi&command == wait && r.Rdx == 2):
		return 1
	case nr == unix.SYS_FUTEX && (r.Rsi&command == waitBitset || r.Rsi&command == wait && r.Rdx == 0):
		return 1
	}
	return 0
}

// waits are calls behind which the C library uses none of the registers that it
// passed.
var waits = map[uint64]bool{
	unix.SYS_POLL: true, unix.SYS_PPOLL: true, unix.SYS_SELECT: true, unix.SYS_PSELECT6: true,
	unix.SYS_EPOLL_WAIT: true, unix.SYS_EPOLL_PWAIT: true, unix.SYS_EPOLL_PWAIT2: true,
	unix.SYS_NANOSLEEP: true, unix.SYS_CLOCK_NANOSLEEP: true,
}

// remade are the calls that report EINTR at every stop, some of them where a
// socket has a time limit, and may be made again: nothing of what they were to do
// was done, or all of it was undone. close is no such call.
var remade = map[uint64]bool{
	unix.SYS_EPOLL_WAIT: true, unix.SYS_EPOLL_PWAIT: true, unix.SYS_EPOLL_PWAIT2: true,
	unix.SYS_RT_SIGTIMEDWAIT: true,
	unix.SYS_RECVFROM:        true, unix.SYS_RECVMSG: true, unix.SYS_RECVMMSG: true,
	unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true, unix.SYS_SENDMMSG: true,
	unix.SYS_ACCEPT: true, unix.SYS_ACCEPT4: true, unix.SYS_CONNECT: true,
	unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREADV: true, unix.SYS_PREADV2: true,
	unix.SYS_WRITE: true, unix.SYS_WRITEV: true, unix.SYS_FALLOCATE: true,
	unix.SYS_SEMOP: true, unix.SYS_SEMTIMEDOP: true, unix.SYS_MSGRCV: true, unix.SYS_MSGSND: true,
	unix.SYS_IO_GETEVENTS: true, unix.SYS_IO_PGETEVENTS: true, unix.SYS_IO_URING_ENTER: true,
}
