"""The files through which a process and the watcher speak.

They lie in the run directory that RSSWARDEN_DIR names. A process says hello
once, looks at its trainer's ctl file once a batch (one stat), and appends what
it has to say to its trainer's log, one write a line. Sizes are in bytes, times
in seconds unless a name says otherwise.
"""
import json
import os
import stat
import sys
import time

_LIMIT = 1 << 16  # no control file or line is larger
_LOG_LIMIT = 1 << 28  # a log that has grown to this is left as it is

_dir = None
_boot_id = None
_pid_ns = None


def meant():
    """Says whether the run directory is ours, safe, and of this boot and PID namespace."""
    global _dir, _boot_id, _pid_ns
    path = os.environ.get("RSSWARDEN_DIR", "")
    if not os.path.isabs(path):
        return False
    try:
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) != 0o700:
            return False
        says = dict(line.split(" ", 1) for line in _read(path + "/identity").splitlines() if " " in line)
        boot_id = _read("/proc/sys/kernel/random/boot_id").strip()
        pid_ns = os.readlink("/proc/self/ns/pid")
    except (OSError, ValueError):
        return False
    if says.get("version") != "1" or says.get("boot_id") != boot_id or says.get("pid_ns") != pid_ns:
        return False
    _dir, _boot_id, _pid_ns = path, boot_id, pid_ns
    return True


def _read(path):
    """Returns the text of a small file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = os.read(fd, _LIMIT + 1)
    finally:
        os.close(fd)
    if len(data) > _LIMIT:
        raise ValueError("file too large: " + path)
    return data.decode("utf-8")


def setting(name):
    """Returns a number that holds for the whole run, 0 where it is not set.

    nofile is how far the soft RLIMIT_NOFILE may be raised, forks is 1 where an
    executor may fork beside its threads, left how many bytes are left for each
    trainer below the memory limits, revive is 1 where workers that the OOM killer takes
    are replaced, 2 where any that dies is. They are in a file of their own: a child of
    multiprocessing says hello no sooner than it owns a loader, too late for a ctl file.
    """
    try:
        settings = json.loads(_read(_dir + "/settings"))
        return int(settings[name]) if settings["v"] == 1 else 0
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return 0


def verdict(key):
    """Returns what came of a trial of the torch with that key: ok or the reason, None where there was none;
    and why workers that die are not replaced with it, empty where they are."""
    try:
        text, _, unrevived = _read("%s/torch.%s" % (_dir, key)).strip()[:1000].partition("\n")
        return text or None, unrevived
    except (OSError, ValueError):
        return None, ""


def untried(key, **fields):
    """Says what a trial of the torch with that key is to be made with."""
    path = "%s/untried.%s" % (_dir, key)
    try:
        if not os.path.exists(path):
            _write(path, json.dumps(dict(fields, v=1, key=key)))
    except OSError:
        pass


def _write(path, text):
    """Writes a small file beside its place and renames it into it."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)
    os.rename(temporary, path)


def start_time(pid):
    """Returns field 22 of /proc/PID/stat: clock ticks since boot."""
    fd = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 4096)
    finally:
        os.close(fd)
    return int(data[data.rindex(b")") + 1:].split()[19])


def left_file(owner, number):
    """Names the file by which a worker of a multiprocessing.Pool tells its owner that it goes because it was asked to."""
    return "%s/left.%d.%s" % (_dir, owner, ".".join(map(str, number)))


class Side:
    """One process's end of the channel. A forked child makes its own."""

    def __init__(self, trainer=None):
        self.pid = os.getpid()
        self.trainer = self.pid if trainer is None else trainer
        name = "%d.%d" % (self.trainer, start_time(self.trainer))
        self._log = "%s/log.%s" % (_dir, name)
        self._ctl = "%s/ctl.%s" % (_dir, name)
        self._hello = "%s/hello.%s" % (_dir, name)
        self._seen = None  # inode, times and size of the ctl file that was read
        self.version = 0
        self.budget = 0
        self.private = False  # trims take private mappings too
        self.left = None  # bytes left below the memory limits; None where that is not said
        self.trims = ()
        self.collects = ()
        self.recycles = ()

    def ready_file(self, pid):
        """Names the file that a replacement makes once it is up; no other that has had its PID left one of that name."""
        return "%s/ready.%d.%d" % (_dir, pid, time.monotonic_ns())

    def hello(self, torch, can_recycle, why, again=True):
        """Says that the process is there; not once more where again is False."""
        if not again and os.path.exists(self._hello):
            return
        text = json.dumps({
            "v": 1, "pid": self.pid, "start": start_time(self.pid), "ppid": os.getppid(), "boot_id": _boot_id,
            "pid_ns": _pid_ns, "torch": str(torch), "python": "%d.%d.%d" % sys.version_info[:3],
            "can_recycle": can_recycle, "why": why or "",
        })
        _write(self._hello, text)

    def say(self, what, **fields):
        """Appends one line to the log. That it cannot be written changes nothing else."""
        fields.update(t=time.time(), pid=self.pid, what=what)
        try:
            data = (json.dumps(fields) + "\n").encode("utf-8")
            if len(data) > _LIMIT:
                return
            fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            try:
                if os.fstat(fd).st_size < _LOG_LIMIT:
                    os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:
            pass

    def look(self):
        """Reads the ctl file where it is another than at the last call; version counts that."""
        try:
            info = os.stat(self._ctl)
        except OSError:
            return
        # An inode comes round, and a file system's times are coarse.
        seen = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(json.loads(_read(self._ctl)))
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            pass  # not written by the watcher: the last good one stays

    def _take(self, ctl):
        if ctl["v"] != 1:
            return
        budget = int(ctl["budget"])
        trims = self._mine(ctl["trim"])
        collects = self._mine(ctl.get("gc", ()))
        recycles = tuple((int(r["id"]), int(r["worker"]), str(r["mode"])) for r in ctl["recycle"])
        self.budget, self.trims, self.collects, self.recycles = max(budget, 0), trims, collects, recycles
        self.private = ctl.get("trim_private") is True
        self.left = max(int(ctl["left"]), 0) if "left" in ctl else None
        self.version += 1

    def _mine(self, requests):
        """Returns the ids of those that ask this process."""
        return tuple(int(r["id"]) for r in requests if self.pid in r["pids"])
