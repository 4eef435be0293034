"""Collecting reference cycles and giving free memory back to the system, on request.

gc.collect frees what only cycles hold on to; malloc_trim of glibc then hands the
pages that lie free inside its arenas back to the kernel. Where there is no
malloc_trim (musl) the first half is done alone, and said. Neither the collector's
thresholds nor what it has frozen are touched. Finalizers of the program run here
as they would in any collection: what they raise is Python's to report.

A trainer pauses meanwhile, a worker's next batch waits: pause_ms says how
long. A forked worker shares its trainer's heap until it writes there, and the
collector writes into every object it looks at: a fifth to nearly half of a
shared heap was seen to become the worker's own by it. A worker that has less
for itself than that could cost only gives free memory back.
"""
import gc
import os
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")
_trim = None  # malloc_trim, False where the C library has none


def resident():
    """Returns what this process has in memory, and what of that is shared, in bytes: fields 2 and 3 of /proc/self/statm."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fields = os.read(fd, 256).split()
    finally:
        os.close(fd)
    return int(fields[1]) * _PAGE, int(fields[2]) * _PAGE


def anonymous():
    """Returns this process's anonymous RSS in bytes: resident less shared."""
    total, shared = resident()
    return max(total - shared, 0)


def release():
    """Has the allocator give free memory back; returns whether it knows how."""
    global _trim
    if _trim is None:
        import ctypes

        try:
            _trim = ctypes.CDLL(None).malloc_trim
            _trim.argtypes, _trim.restype = (ctypes.c_size_t,), ctypes.c_int
        except AttributeError:
            _trim = False
    if _trim is False:
        return False
    _trim(0)
    return True


def inherited():
    """Says whether collecting could cost this process more than it has for itself.

    That is, whether half of Shared_Dirty of /proc/self/smaps_rollup (Linux 4.14) is
    above Private_Dirty; False where they cannot be read. Dirty pages of files
    count too, and are few.
    """
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            fields = dict(line.split(None, 2)[:2] for line in file.read().splitlines()[1:])
        return int(fields[b"Shared_Dirty:"]) > 2 * int(fields[b"Private_Dirty:"])
    except (OSError, ValueError, LookupError):
        return False


class Collector:
    """Meets one process's requests of its trainer's ctl file."""

    def __init__(self, side, worker):
        self._side, self._worker = side, worker
        self._version = 0  # of the ctl file that was met
        self._done = 0  # the newest request that was met

    def requests(self):
        """Meets the requests of the ctl file; one collection answers all that are new."""
        if self._version == self._side.version:
            return
        self._version = self._side.version
        new = [number for number in self._side.collects if number > self._done]
        if not new:
            return
        self._done = max(new)
        began = time.perf_counter()
        before, why = anonymous(), []
        if self._worker and inherited():
            why.append("no gc.collect: most of its memory is shared with the trainer")
        else:
            gc.collect()
        if not release():
            why.append("no malloc_trim in this C library")
        after, paused = anonymous(), time.perf_counter() - began
        for number in new:
            self._side.say("collected", id=number, worker=self._side.pid, before=before, after=after,
                           freed=max(before - after, 0), pause_ms=paused * 1e3, why="; ".join(why))
