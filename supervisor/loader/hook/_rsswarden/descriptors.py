"""What a forked replacement has of the files and pipes that its trainer has open.

fork(2) gives the child its parent's open files, offset included: a dataset
that has read a file in the trainer and reads it in a worker moves one offset
from two processes, and records come back silently wrong. Workers of the first
generation meet that only where the trainer read before they were made; a
replacement is forked later and would meet it where the user never did. So it
opens again each regular file that is open for reading only, in the place of the
inherited one and at its position at the fork. Those open
for writing too stay shared: what both processes write must go on in one place.

A program that reads a pipe, such as one with subprocess.Popen(stdin=PIPE), sees its end
once no process has it open for writing. A worker that was there before does not have it; a
replacement would, for as long as it lives. So it has /dev/null in the place of pipes to
others that were opened since its loader's or pool's first workers.
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


def write_ends(known=()):
    """Returns the pipes that this process can only write to, as device and inode by descriptor, without those that are known.

    A pipe that leads to this process, or has the place of its own output, is none of them.
    """
    ends, own = {}, set(known)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            pipe = _pipe(fd)
            if pipe is not None and fd > 2 and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                ends[fd] = pipe
            else:
                own.add(pipe)
        except OSError:
            continue  # as in positions
    return {fd: pipe for fd, pipe in ends.items() if pipe not in own}


def _pipe(fd):
    info = os.fstat(fd)
    return (info.st_dev, info.st_ino) if stat.S_ISFIFO(info.st_mode) else None


def let_go(ends):
    """Puts /dev/null, in the child, in the place of the pipes that write_ends found: what has the number may still write."""
    for fd, pipe in ends.items():
        try:
            if _pipe(fd) == pipe:
                null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(null, fd, os.get_inheritable(fd))
                os.close(null)
        except OSError:
            continue
