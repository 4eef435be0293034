"""Maps one file in all the ways, trims, and prints per way how much of it stayed mapped, and whether the data did.

Usage: mappings.py HOOK FILE [race SECONDS ours|naive]
"""
import ctypes
import json
import mmap
import os
import shutil
import sys
import threading
import time
import types

import numpy

hook, path = sys.argv[1:3]
package = types.ModuleType("_rsswarden")
package.__path__ = [os.path.join(hook, "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import private, trim

MIB = 1 << 20
size = os.path.getsize(path)
libc = ctypes.PyDLL(None)
P, Z = ctypes.c_void_p, ctypes.c_size_t
libc.mmap.argtypes, libc.mmap.restype = (P, Z, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long), P
libc.mprotect.argtypes = libc.madvise.argtypes = (P, Z, ctypes.c_int)
libc.munmap.argtypes = (P, Z)


def resident(address):
    """Returns Rss of the mapping at address in bytes."""
    with open("/proc/self/smaps") as file:
        found = False
        for line in file:
            if line.startswith("%x-" % address):
                found = True
            elif found and line.startswith("Rss:"):
                return int(line.split()[1]) << 10


def copied(name, head=b""):
    """Makes a file of its own, all written back."""
    other = os.path.join(os.path.dirname(path), name)
    shutil.copyfile(path, other)
    with open(other, "r+b") as file:
        file.write(head)
        file.flush()
        os.fsync(file.fileno())
    return other


def mapped(name, flags, prot, length=size):
    """Maps a file as pyarrow does, by mmap(2) alone."""
    fd = os.open(name, os.O_RDWR if prot & 2 and flags == mmap.MAP_SHARED else os.O_RDONLY)
    address = libc.mmap(None, length, prot, flags, fd, 0)
    os.close(fd)
    return numpy.frombuffer((ctypes.c_ubyte * length).from_address(address), numpy.uint8)


def read_only(array):
    libc.mprotect(array.ctypes.data, array.nbytes, mmap.PROT_READ)
    return array


def written(array):
    array[5 * MIB:5 * MIB + 100] = 77
    return array


def deleted():
    name = copied("deleted")
    array = mapped(name, mmap.MAP_PRIVATE, mmap.PROT_READ)
    os.unlink(name)
    return array


def replaced():
    name = copied("replaced")
    array = mapped(name, mmap.MAP_PRIVATE, mmap.PROT_READ)
    os.rename(copied("other"), name)
    return array


def with_mmap(access):
    with open(path, "rb") as file:
        return numpy.frombuffer(mmap.mmap(file.fileno(), 0, access=access), numpy.uint8)


READ, BOTH = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
WAYS = {
    "memmap r": lambda: numpy.memmap(path, mode="r"),
    "memmap c": lambda: numpy.memmap(path, mode="c"),
    "memmap c, written": lambda: written(numpy.memmap(path, mode="c")),
    "ACCESS_READ": lambda: with_mmap(mmap.ACCESS_READ),
    "ACCESS_COPY": lambda: with_mmap(mmap.ACCESS_COPY),
    "pyarrow": lambda: mapped(path, mmap.MAP_PRIVATE, READ),
    "once writable": lambda: read_only(mapped(path, mmap.MAP_PRIVATE, BOTH)),
    "once written": lambda: read_only(written(mapped(path, mmap.MAP_PRIVATE, BOTH))),
    "executable": lambda: mapped(path, mmap.MAP_PRIVATE, READ | mmap.PROT_EXEC),
    "ELF": lambda: mapped(copied("elf", b"\x7fELF"), mmap.MAP_PRIVATE, READ),
    "small": lambda: mapped(path, mmap.MAP_PRIVATE, READ, 63 * MIB),
    "deleted": deleted,
    "replaced": replaced,
}


def ways():
    result = {}
    for name, make in WAYS.items():
        array = make()
        before = int(array.sum(dtype=numpy.int64)), int(array[::4096].astype(numpy.int64).dot(numpy.arange(array[::4096].size)))
        full = resident(array.ctypes.data)
        said = []
        trim.trim()
        first = resident(array.ctypes.data)
        if not first:
            array.sum(dtype=numpy.int64)
        trim.trim(said.append)
        second = resident(array.ctypes.data)
        after = int(array.sum(dtype=numpy.int64)), int(array[::4096].astype(numpy.int64).dot(numpy.arange(array[::4096].size)))
        result[name] = dict(full=full, trim=first, private=second, same=before == after, said=said)
        if hasattr(array, "_mmap") or name.startswith("ACCESS"):
            del array
        else:
            address, length = array.ctypes.data, array.nbytes
            del array
            libc.munmap(address, length)
    print(json.dumps(result))


def naive():
    with open("/proc/self/maps", "rb") as file:
        text = file.read()
    listed = list(trim.mappings(text))
    time.sleep(1e-4)  # the thread runs here
    for m in listed:
        if m.perms[3:] == b"s":
            libc.madvise(m.start, m.length, 4)


def race(seconds, work):
    """Trims while a thread takes files away and puts memory of its own in their places."""
    sys.setswitchinterval(1e-6)
    length, stop, lost, turns = 8 * MIB, [], [0], [0]
    fd = os.open(path, os.O_RDONLY)
    others = [mmap.mmap(fd, length, flags=mmap.MAP_SHARED, prot=READ) for _ in range(40)]

    def turn():
        file = libc.mmap(None, length, READ, mmap.MAP_SHARED, fd, 0)
        ctypes.string_at(file, 1)
        libc.munmap(file, length)
        own = libc.mmap(file, length, BOTH, 0x32, -1, 0)  # private, anonymous, at that address
        ctypes.memset(own, 7, 1)
        for _ in range(20):
            if ctypes.string_at(own, 1) != b"\7":
                lost[0] += 1
                break
        libc.munmap(own, length)
        turns[0] += 1

    def run():
        while not stop:
            turn()

    thread = threading.Thread(target=run)
    thread.start()
    end, trims = time.monotonic() + seconds, 0
    while time.monotonic() < end and (work is trim.trim or not lost[0]):
        work()
        trims += 1
    stop.append(True)
    thread.join()
    print(json.dumps(dict(lost=lost[0], turns=turns[0], trims=trims, others=len(others))))


if len(sys.argv) > 3:
    race(float(sys.argv[4]), {"ours": trim.trim, "naive": naive}[sys.argv[5]])
else:
    ways()
