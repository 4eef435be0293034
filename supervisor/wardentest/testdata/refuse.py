import ast, ctypes, os, struct, sys
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
LOAD, GE, EQ, RET = 0x20, 0x35, 0x15, 0x06
def match(at, value, skip): return op(LOAD, 0, 0, at) + op(GE if value < 0 else EQ, 0, skip, abs(value))
program = b""
for number, errno, *arg in ast.literal_eval(sys.argv[1]):
    program += match(0, number, 3 if arg else 1)
    if arg: program += match(16 + 8 * arg[0], arg[1], 1)
    program += op(RET, 0, 0, 0x00050000 | errno)
program += op(RET, 0, 0, 0x7fff0000)
buf = ctypes.create_string_buffer(program)
prog = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
for args in ((38, 1, 0, 0, 0), (22, 2, prog, 0, 0)):
    if libc.prctl(*args): sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
