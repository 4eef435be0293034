"""Dropping mapped pages of files, on request and by budget.

MADV_DONTNEED on a read-only shared mapping of a file takes the pages out of
this process alone: they stay in the page cache, and the next read maps them
again. RSS falls, data do not change. A private mapping may hold pages that
exist nowhere else: those are left alone, but for what private.py lets through
where the user asked for that.

Another thread may unmap a file at any moment, and memory of its own may come to
lie at the same address, where MADV_DONTNEED would destroy it. So each mapping is
looked up once more right before, and from that look to the drop the interpreter's
lock is not let go. What remains is the time between the two (microseconds, or what
dropping those takes that were looked up with it, where there are many), for threads
that run without that lock: those of C libraries, and one of Python within
mmap.close(), which lets go of it around munmap(2) from Python 3.11 on. Only where
one of them unmaps the file and a thread is given the same addresses for memory
that it writes, all in these, is anything lost.
"""
import collections
import functools
import operator
import os
import re
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MADV_DONTNEED = 4  # madvise(2)
_LEAST = 4 << 20  # mappings below this are left alone
_TOGETHER = 16  # mappings dropped after one look, at most
_LOOKS = 1 << 20  # bytes of maps that a trim reads again before more than one is
_ROOM = 64 << 10  # by which what is read may have grown since
_STEP = 16 << 20  # above what a trim left: less growth is not worth another
_WORTH = 1 << 20  # a trim that freed less was useless
_QUIET = 5.0  # seconds between two reports of a budget

# address perms offset dev inode path; paths may hold spaces
_LINE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (r-[-x][sp]) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ ([1-9][0-9]*) +(/[^\n]*)$", re.MULTILINE)
_NO_FILE = (b"/dev/", b"/memfd:", b"/SYSV")

Mapping = collections.namedtuple("Mapping", "line start length perms inode path")


def shared():
    """Returns the bytes mapped from files and shared memory: field 3 of /proc/self/statm."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 256).split()[2]) * _PAGE
    finally:
        os.close(fd)


def mappings(text):
    """Yields each mapping of a file in text, a /proc/PID/maps, that is readable, not writable and not small."""
    for match in _LINE.finditer(text):
        low, high, perms, inode, path = match.groups()
        start = int(low, 16)
        length = int(high, 16) - start
        if length >= _LEAST and not path.startswith(_NO_FILE):
            yield Mapping(match.group(), start, length, perms, int(inode), path)


class _C:
    """What is called of the C library, each without letting go of the interpreter's lock."""

    def __init__(self):
        import ctypes

        library = ctypes.PyDLL(None)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        for name, arguments, result in (
                ("fopen", (ctypes.c_char_p, ctypes.c_char_p), pointer),
                ("fread", (pointer, size, size, pointer), size),
                ("fclose", (pointer,), ctypes.c_int),
                ("madvise", (pointer, size, ctypes.c_int), operator.not_)):  # True where it worked
            function = library[name]  # its own: another user's of the same library has other types
            function.argtypes, function.restype = arguments, result
            setattr(self, name, function)
        self.byte = ctypes.c_char


_c = None


def drop(path, size, wanted):
    """Takes the pages of mappings out of this process, where the file at path says of each what it must; returns those.

    path is /proc/self/maps or smaps, size about how large it is. wanted are pairs
    of a mapping and a function that is given the text, after a line feed, and says
    whether the mapping may be dropped; it must be one of C, such as a pattern's
    search. The C library reads, the function looks and the kernel drops in calls
    that C makes one after the other: no line of Python lies between them, so the
    interpreter's lock is not let go.
    """
    global _c
    if _c is None:
        _c = _C()
    call = operator.methodcaller("__call__")
    size = (size // _ROOM + 2) * _ROOM
    text = bytearray(b"\n") + bytearray(size)
    stream = _c.fopen(os.fsencode(path), b"re")
    if not stream:
        return []
    try:
        steps = [functools.partial(_c.fread, (_c.byte * size).from_buffer(text, 1), 1, size, stream)]
        for mapping, may in wanted:
            # A mapping that is locked refuses; it keeps its pages.
            one = functools.partial(may, text), functools.partial(_c.madvise, mapping.start, mapping.length, _MADV_DONTNEED)
            steps.append(functools.partial(all, map(call, one)))
        worked = list(map(call, steps))[1:]
    finally:
        _c.fclose(stream)
    return [mapping for (mapping, _), done in zip(wanted, worked) if done]


def trim(wrong=None):
    """Drops the pages of every mapping that may be trimmed; returns shared() before and after.

    With wrong, private mappings are included; wrong is called with what is wrong with one.
    """
    before = shared()
    with open("/proc/self/maps", "rb") as file:
        text = file.read()
    found = list(mappings(text))
    safe = [m for m in found if m.perms[3:] == b"s"]
    together = min(1 + len(safe) * len(text) // _LOOKS, _TOGETHER)
    for first in range(0, len(safe), together):
        drop("/proc/self/maps", len(text),
             [(m, operator.methodcaller("__contains__", b"\n" + m.line + b"\n")) for m in safe[first:first + together]])
    if wrong is not None:
        from _rsswarden import private

        why = private.trim(found, text, drop)
        if why is not None:
            wrong(why)
    return before, shared()


class Trimmer:
    """Trims one process as its trainer's ctl file says."""

    def __init__(self, side):
        self._side = side
        self._version = 0  # of the ctl file that was met
        self._done = 0  # the newest request that was met
        self._private = False  # as the ctl file had it last
        self._above = 0  # a budget counts from here on
        self._count, self._freed, self._before, self._after = 0, 0, 0, 0  # trims not reported yet
        self._reported = 0.0

    def requests(self):
        """Meets the requests of the ctl file."""
        if self._version == self._side.version:
            return
        self._version = self._side.version
        if self._private != self._side.private:
            self._private = self._side.private
            self._above = 0  # more, or less, can be trimmed from now on
        for number in self._side.trims:
            if number > self._done:
                self._done = number
                before, after = trim(self._wrong if self._private else None)
                self._side.say("trimmed", id=number, worker=self._side.pid, before=before, after=after,
                               count=1, why="request")

    def budget(self):
        """Trims where more is mapped than the budget allows; returns what was mapped, 0 without a budget."""
        budget = self._side.budget
        if not budget:
            return 0
        mapped = shared()
        if mapped <= max(budget, self._above):
            return mapped
        before, after = trim(self._wrong if self._private else None)
        # What is left cannot be trimmed: libraries, tensors in shared memory, private
        # mappings. Where it is that which grows, the next try comes later each time.
        if before - after < _WORTH:
            self._above = after + max(_STEP, after // 8)
            return before
        self._above = after + _STEP
        if not self._count:
            self._before = before
        self._before = max(self._before, before)
        self._after = after
        self._count += 1
        self._freed += max(before - after, 0)
        self.report()
        return before

    def _wrong(self, why):
        self._side.say("refused", worker=self._side.pid, why="private mappings are left alone from now on: " + why)

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
