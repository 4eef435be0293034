"""Which private mappings of files may be dropped too, where the user asked for it.

pyarrow, and so Hugging Face datasets, map their files MAP_PRIVATE and only read
them. Such a mapping is as good as a shared one, unless it was ever written: the
written pages are anonymous, exist nowhere else, and MADV_DONTNEED would undo
the writing. So a mapping is left alone unless, all at once,

- it is readable, neither writable nor executable (r--p), and 64 MiB or larger;
- its file is there under its name, regular and no ELF object;
- /proc/self/smaps counts nothing in it as anonymous, swapped or Private_Dirty,
  and its flags do not say that it was ever writable, is locked or special.

The last is looked up right before the drop, for the very lines that were chosen,
and again after it: a page of the program's own that shows up in a mapping that
should have none ends this for the process, and that is said. Files on tmpfs, and
such as were written moments ago, are refused too while their pages are dirty in
the page cache.
"""
import os
import re
import stat

_LEAST = 64 << 20
_ENTRY = 1200  # bytes of smaps that a mapping takes, at most, beside its line
_KNOWN = 4096  # files that are remembered

# writable, shared, executable, special memory, locked, once writable (accounted
# for), huge pages, watched by userfaultfd: proc_pid_smaps(5)
_FLAGS = rb"wr|sh|ex|io|pf|lo|ac|ht|um|uw|ui"
_FIELDS = rb"(?:[A-Z]\w*:[^\n]*\n)*?"
_CLEAN = (rb"(?=%sPrivate_Dirty: +0 kB\n)(?=%sAnonymous: +0 kB\n)(?=%sSwap: +0 kB\n)(?=%sVmFlags:(?!(?: [a-z0-9]{2})*? (?:%s)\b))"
          % (_FIELDS, _FIELDS, _FIELDS, _FIELDS, _FLAGS))
_OWN = rb"%sAnonymous: +[1-9]" % _FIELDS

_plain = {}  # type: dict  # whether a file is regular and no ELF object, by path and inode
off = False  # a mapping was found written that should not have been


def plain(mapping):
    """Says whether the mapped file is there, regular, and no ELF object."""
    key = mapping.path, mapping.inode
    known = _plain.get(key)
    if known is None:
        if len(_plain) >= _KNOWN:
            _plain.clear()
        known = _plain[key] = _look(mapping)
    return known


def _look(mapping):
    try:
        if not stat.S_ISREG(os.stat(mapping.path).st_mode):
            return False
        fd = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            info = os.fstat(fd)
            # The device is not compared: stat(2) and maps differ in it on btrfs and overlayfs.
            return stat.S_ISREG(info.st_mode) and info.st_ino == mapping.inode and os.read(fd, 4) != b"\x7fELF"
        finally:
            os.close(fd)
    except OSError:
        return False


def candidates(found):
    """Returns those of found, mappings of files, that smaps has to decide on."""
    return [m for m in found if m.perms == b"r--p" and m.length >= _LEAST and plain(m)]


def clean(mapping):
    """Returns a function that says whether a smaps, after a line feed, has mapping, with nothing in it but clean pages of its file."""
    return re.compile(b"\n" + re.escape(mapping.line) + b"\n" + _CLEAN).search


def written(mapping, smaps):
    """Says whether a smaps, after a line feed, has mapping, with anonymous pages in it."""
    return re.search(b"\n" + re.escape(mapping.line) + b"\n" + _OWN, smaps) is not None


def trim(found, maps, drop):
    """Drops the pages of those of found that may be dropped; returns what is wrong with one of them after it, or None."""
    global off
    chosen = [] if off else candidates(found)
    if not chosen:
        return None
    dropped = drop("/proc/self/smaps", len(maps) + _ENTRY * maps.count(b"\n"), [(m, clean(m)) for m in chosen])
    if not dropped:
        return None
    with open("/proc/self/smaps", "rb") as file:
        smaps = b"\n" + file.read()
    for mapping in dropped:
        if written(mapping, smaps):
            off = True
            return "%s had no page of its own, and has now" % os.fsdecode(mapping.path)
    return None
