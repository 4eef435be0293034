"""What workers that are not forked cost: a start each, and a copy of the data set each.

fork shares the trainer's memory with its workers. spawn and forkserver, the default
from Python 3.14 on, send the data set to each worker as a pickle: the trainer's call
lasts as long as that takes, and what is no tensor is then in memory once a worker.

The trainer tells with iter how its workers were started, how long one start took and
how much it wrote meanwhile. A worker tells before its first batch how much private
memory it has, and how much of that it had when it imported torch, which is before
the data set came: both are Private_Dirty of smaps_rollup, read once.
"""
import multiprocessing
import os
import time

from _rsswarden import birth, channel, sharing

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")

_LITTLE = 1 << 20  # a pickle of so many bytes takes no time to speak of

_imported = (0, 0)  # a PID, and what that process had when it had imported torch


class Start:
    """The start of one loader's workers, made before torch starts them."""

    def __init__(self, method, by):
        self._method, self._by = method, by
        self._written, self._began = _written(), time.monotonic()

    @classmethod
    def of(cls, loader, torch):
        """Returns the start that is about to come, or None where workers are forked."""
        given = loader.multiprocessing_context
        method = sharing.method(given or torch.multiprocessing)
        if method == "fork":
            return None
        by = "set_start_method"
        if given is not None:
            by = "multiprocessing_context"
        elif getattr(multiprocessing.current_process(), "_start_method", None) == method:
            by = "parent"  # multiprocessing hands a method on to the children started by it
        elif multiprocessing.get_all_start_methods()[0] == method:
            by = "default"
        return cls(method, by)

    def fields(self, workers, torch):
        """The fields of iter, now that the workers have been started."""
        took = (time.monotonic() - self._began) / max(len(workers), 1)
        written = _written()
        known = self._written >= 0 and written >= 0 and workers
        sent = (written - self._written) // len(workers) if known else -1
        if len(workers) > 1:
            try:  # without what precedes the first, such as the start of the fork server
                took = (channel.start_time(workers[-1]) - channel.start_time(workers[0])) * _TICK / (len(workers) - 1)
            except (OSError, ValueError, LookupError):
                pass  # one has ended
        elif 0 <= sent < _LITTLE:
            took = 0.0  # what took long was the start of the fork server
        return {
            "start": self._method, "start_by": self._by, "start_ms": max(took, 0) * 1e3,
            "sent": sent,
            "cuda": _cuda(torch), "registered": birth.registered() or "",
        }


def _cuda(torch):
    """Says whether this process has begun to use CUDA, without beginning to."""
    begun = getattr(getattr(torch.module, "cuda", None), "is_initialized", None)
    return bool(begun and begun())


def _written():
    """Returns how many bytes this process has written, to pipes too, or -1."""
    try:
        with open("/proc/self/io", "rb", 0) as file:
            for line in file:
                if line.startswith(b"wchar:"):
                    return int(line[6:])
    except (OSError, ValueError):
        pass
    return -1


def _private():
    """Returns the private dirty memory of this process in bytes, or -1."""
    try:
        with open("/proc/self/smaps_rollup", "rb", 0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"Private_Dirty:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return -1


def imported():
    """Notes what this child of spawn or forkserver has, which has just imported torch and got no data set yet."""
    global _imported
    _imported = os.getpid(), max(_private(), 0)


def tell(side):
    """Has a worker that was not forked tell what memory is its own, before its first batch.

    Where the fork server had imported torch, the worker had none of its own until then.
    """
    process = multiprocessing.current_process()
    method = getattr(process, "_start_method", None) or multiprocessing.get_start_method(allow_none=True)
    if method in (None, "fork"):
        return
    own = _private()
    if own >= 0:
        before = _imported[1] if _imported[0] == os.getpid() else 0
        side.say("private", worker=side.pid, before=before, after=own)
