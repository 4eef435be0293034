"""A cure for file offsets that a forked worker shares with its trainer.

fork(2) gives the child its parent's open files, offset included: a dataset
that has read a file in the trainer and reads it in a worker moves one offset
from two processes, and records come back silently wrong. Workers of the first
generation meet that only where the trainer read before they were made; a
replacement is forked later and would meet it where the user never did. So it
opens again each regular file that is open for reading only, in the place of the
inherited one and at its position at the fork. Those open
for writing too stay shared: what both processes write must go on in one place.
"""
import fcntl
import os
import stat

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
