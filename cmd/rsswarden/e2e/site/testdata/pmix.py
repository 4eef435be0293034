# Two ranks exchange a value through Slurm by libpmix, as an MPI library does.
import ctypes, os


class Proc(ctypes.Structure):
    _fields_ = [("space", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class Value(ctypes.Structure):  # of a string
    _fields_ = [("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("rest", ctypes.c_char * 64)]


pmix = ctypes.CDLL("libpmix.so.2")
STRING, GLOBAL, me, got = 3, 3, Proc(), ctypes.POINTER(Value)()


def call(name, *args):
    rc = getattr(pmix, "PMIx_" + name)(*args)
    assert rc == 0, f"{name}: {rc}"


nothing, none = None, ctypes.c_size_t(0)
call("Init", ctypes.byref(me), nothing, none)
call("Put", ctypes.c_uint8(GLOBAL), b"value", ctypes.byref(Value(STRING, b"of%d" % me.rank)))
call("Commit")
call("Fence", nothing, none, nothing, none)
other = Proc(me.space, 1 - me.rank)
call("Get", ctypes.byref(other), b"value", nothing, none, ctypes.byref(got))
call("Finalize", nothing, none)
text = got.contents.text.decode()
with open(f"/proc/{os.getppid()}/comm") as f:
    print(f"by {f.read().strip()}\ngot {'of' if text == f'of{other.rank}' else text}", flush=True)
