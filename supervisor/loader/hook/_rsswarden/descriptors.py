"""What a forked replacement has of the files and pipes that its trainer has open.

fork(2) gives the child its parent's open files, offset included: a dataset
that has read a file in the trainer and reads it in a worker moves one offset
from two processes, and records come back silently wrong. Workers of the first
generation meet that only where the trainer read before they were made; a
replacement is forked later and would meet it where the user never did. So it
opens again each regular file that is open for reading only, in the place of the
inherited one and at its position at the fork. Those open
for writing too stay shared: what both processes write must go on in one place.

A program at the other end of a pipe, such as one with subprocess.Popen(stdin=PIPE), sees its
end once no process has this end open. The first workers do not have a pipe that
was opened after them; a replacement would, until it ends. So it gets /dev/null instead of
each pipe to another process that was opened after the first workers of its loader or pool.
"""
import contextlib
import fcntl
import functools
import os
import stat
import threading

_forks = threading.local()  # what a replacement is to be without that a thread forks

_KEPT = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DSYNC | os.O_DIRECT | os.O_NOATIME


def positions():
    """Returns the position of every regular file that this process has open for reading alone, by descriptor.

    To be called in the trainer just before the fork: afterwards its own reading
    moves the offset on.
    """
    found = {}
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd > 2 and stat.S_ISREG(os.fstat(fd).st_mode) and _read_only(fcntl.fcntl(fd, fcntl.F_GETFL)):
                found[fd] = os.lseek(fd, 0, os.SEEK_CUR)
        except OSError:
            continue  # the descriptor that lists them, for one
    return found


def _read_only(flags):
    return flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_PATH


def reopen(found):
    """Opens again, in the child, the files that positions found; one that cannot be opened stays as it is."""
    for fd, position in found.items():
        try:
            _reopen(fd, position)
        except OSError:
            continue


def _reopen(fd, position):
    info = os.fstat(fd)
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    inheritable = os.get_inheritable(fd)
    new = os.open("/proc/self/fd/%d" % fd, flags & _KEPT | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        other = os.fstat(new)
        if (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino):
            os.lseek(new, position, os.SEEK_SET)
            os.dup2(new, fd, inheritable)
    finally:
        os.close(new)


def pipes():
    """Returns the pipes that this process has open, as device and inode."""
    return frozenset(pipe for _, pipe, _ in _pipes())


def _pipes():
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            pipe = _pipe(fd)
            if pipe is not None:
                yield fd, pipe, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            continue  # as in positions


def _pipe(fd):
    info = os.fstat(fd)
    return (info.st_dev, info.st_ino) if stat.S_ISFIFO(info.st_mode) else None


def since(known):
    """Returns the pipes to others that are not known, and which end of each this process has, by descriptor.

    A pipe of which it has both ends, or one in the place of its own input or output, is not to others.
    """
    found, modes = list(_pipes()), {}
    for fd, pipe, mode in found:
        modes.setdefault(pipe, set()).add(mode if fd > 2 else os.O_RDWR)
    return {fd: (pipe, mode) for fd, pipe, mode in found
            if pipe not in known and modes[pipe] == {mode} and mode != os.O_RDWR}


def let_go(found):
    """Puts /dev/null, in the child, in the place of the pipes that since found: what has the number may still use it."""
    for fd, (pipe, mode) in found.items():
        try:
            if _pipe(fd) == pipe:
                null = os.open(os.devnull, mode | os.O_CLOEXEC)
                os.dup2(null, fd, os.get_inheritable(fd))
                os.close(null)
        except OSError:
            continue


@contextlib.contextmanager
def without(known):
    """Has what this thread forks meanwhile be without the pipes to others that are not known."""
    _watch_forks()
    try:
        _forks.found = since(known)
    except OSError:
        pass  # no descriptor is left for the list: it has them all
    try:
        yield
    finally:
        _forks.found = {}


@functools.lru_cache(None)
def _watch_forks():
    os.register_at_fork(after_in_child=_forked)


def _forked():
    let_go(getattr(_forks, "found", {}))
    _forks.found = {}
