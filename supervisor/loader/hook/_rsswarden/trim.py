"""Dropping mapped pages of files, on request and by budget.

MADV_DONTNEED on a read-only shared mapping of a file takes the pages out of
this process alone: they stay in the page cache, and the next read maps them
again. RSS falls, data do not change. A private mapping may hold pages that
exist nowhere else and is never touched.
"""
import os
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MADV_DONTNEED = 4  # madvise(2)
_LEAST = 4 << 20  # mappings below this are left alone
_STEP = 16 << 20  # above what a trim left: less growth is not worth another
_QUIET = 5.0  # seconds between two reports of a budget


def shared():
    """Returns the bytes mapped from files and shared memory: field 3 of /proc/self/statm."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 256).split()[2]) * _PAGE
    finally:
        os.close(fd)


def mappings(text):
    """Yields start and length of each mapping in text, a /proc/PID/maps, that may be trimmed."""
    for line in text.split(b"\n"):
        # address perms offset dev inode path; paths may hold spaces
        fields = line.split(None, 5)
        if len(fields) < 6 or fields[1][:1] != b"r" or fields[1][1:2] != b"-" or fields[1][3:4] != b"s":
            continue
        path = fields[5]
        if fields[4] == b"0" or path[:1] != b"/" or path.startswith((b"/dev/", b"/memfd:", b"/SYSV")):
            continue
        low, _, high = fields[0].partition(b"-")
        start, end = int(low, 16), int(high, 16)
        if end - start >= _LEAST:
            yield start, end - start


_madvise = None


def _load():
    global _madvise
    if _madvise is None:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).madvise
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        function.restype = ctypes.c_int
        _madvise = function


def trim():
    """Drops the pages of every mapping that may be trimmed; returns shared() before and after."""
    _load()
    before = shared()
    with open("/proc/self/maps", "rb") as file:
        text = file.read()
    for start, length in mappings(text):
        # A mapping that is locked refuses; it keeps its pages.
        _madvise(start, length, _MADV_DONTNEED)
    return before, shared()


class Trimmer:
    """Trims one process as its trainer's ctl file says."""

    def __init__(self, side):
        self._side = side
        self._version = 0  # of the ctl file that was met
        self._done = 0  # the newest request that was met
        self._above = 0  # a budget counts from here on
        self._count, self._freed, self._before, self._after = 0, 0, 0, 0  # trims not reported yet
        self._reported = 0.0

    def requests(self):
        """Meets the requests of the ctl file."""
        if self._version == self._side.version:
            return
        self._version = self._side.version
        for number in self._side.trims:
            if number > self._done:
                self._done = number
                before, after = trim()
                self._side.say("trimmed", id=number, worker=self._side.pid, before=before, after=after,
                               count=1, why="request")

    def budget(self):
        """Trims where more is mapped than the budget allows."""
        budget = self._side.budget
        if not budget or shared() <= max(budget, self._above):
            return
        before, after = trim()
        # What is left cannot be trimmed: libraries, tensors in shared memory.
        self._above = after + _STEP
        if not self._count:
            self._before = before
        self._before = max(self._before, before)
        self._after = after
        self._count += 1
        self._freed += max(before - after, 0)
        self.report()

    def report(self):
        """Reports what the budget did, at most once in a while."""
        now = time.monotonic()
        if not self._count or now - self._reported < _QUIET:
            return
        self._reported = now
        self._side.say("trimmed", worker=self._side.pid, before=self._before, after=self._after, count=self._count,
                       freed=self._freed, why="budget")
        self._count = self._freed = 0


class Watched(list):
    """The indices of a batch, with a look at the budget before each but the first.

    One record may map several hundred times its size (a fault maps a whole folio of
    the page cache), so a batch can overshoot a budget many times.
    """

    __slots__ = ("_check",)

    @classmethod
    def over(cls, indices, check):
        watched = cls(indices)
        watched._check = check
        return watched

    def __iter__(self):
        first = True
        for index in list.__iter__(self):
            if not first:
                self._check()
            first = False
            yield index
