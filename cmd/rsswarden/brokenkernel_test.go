package main_test

import (
	"runtime"
)

// belowSyscall424 has every system call that is newer than Linux 4.18 fail with ENOSYS,
// and waitid(2) of a pidfd with EINVAL, in the program that it executes.
const belowSyscall424 = `
import ctypes, os, struct, sys
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
LOAD, GE, EQ, RET = 0x20, 0x35, 0x15, 0x06
program = b"".join([
    op(LOAD, 0, 0, 0),
    op(GE, 3, 0, 424),
    op(EQ, 0, 3, 247), # waitid
    op(LOAD, 0, 0, 16),
    op(EQ, 2, 1, 3), # P_PIDFD
    op(RET, 0, 0, 0x00050000 | 38),
    op(RET, 0, 0, 0x7fff0000),
    op(RET, 0, 0, 0x00050000 | 22),
])
buf = ctypes.create_string_buffer(program)
prog = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
for args in ((38, 1, 0, 0, 0), (22, 2, prog, 0, 0)):
    if libc.prctl(*args): sys.exit(os.strerror(ctypes.get_errno()))
try:
    os.pidfd_open(os.getpid())
    sys.exit("pidfd_open works")
except OSError as e:
    if e.errno != 38: raise
os.execv(sys.argv[1], sys.argv[1:])
`

// oldKernel plays one.
func oldKernel(r *brokenRun) {
	if runtime.GOARCH != "amd64" {
		r.t.Skip("the numbers of system calls are amd64's")
	}
	r.startBy("/usr/bin/python3", "-c", belowSyscall424)
}
