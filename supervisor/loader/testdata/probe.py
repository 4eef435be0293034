"""Writes what a Python can see of itself, one "KEY<TAB>VALUE" a line, to the file named first.

It runs on 2.7 and later. What varies between two equal runs (PIDs, times,
sizes, addresses) is left out. With "torch" among the arguments torch is
imported before, with "proc" /proc/self is printed too.
"""
from __future__ import print_function

import sys

FOUND = []


def say(key, value):
    FOUND.append("%s\t%s" % (key, " ".join(str(value).split())))


def interpreter():
    """Printed first, before the probe has imported anything itself."""
    for name in sorted(sys.modules):
        say("sys.modules " + name, "there")
    for name in sorted(sys.path_importer_cache):
        say("sys.path_importer_cache " + name, "there")
    say("sys.path", sys.path)
    say("sys.meta_path", [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path])
    say("sys.path_hooks", len(sys.path_hooks))
    say("sys.flags", sys.flags)
    say("sys.argv", sys.argv[1:])
    say("sys.warnoptions", sys.warnoptions)
    say("sys.dont_write_bytecode", sys.dont_write_bytecode)
    say("sys.prefix", (sys.prefix, sys.exec_prefix, sys.executable))
    say("sys names", sorted(n for n in vars(sys) if n not in ("exc_clear", "exc_type", "last_type")))
    say("sys hooks", (sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                      sys.gettrace(), sys.getprofile()))
    say("sys limits", (sys.getrecursionlimit(), getattr(sys, "getswitchinterval", int)()))
    say("streams", [(s.encoding, getattr(s, "line_buffering", None)) for s in (sys.stdin, sys.stdout, sys.stderr)])
    say("builtins", sorted(vars(__import__("builtins" if sys.version_info[0] > 2 else "__builtin__"))))
    say("main", sorted(vars(sys.modules["__main__"])))


def libraries():
    import atexit
    import gc
    import os
    import random
    import signal
    import threading
    import warnings

    say("warnings.filters", len(warnings.filters))
    say("threads", [t.name for t in threading.enumerate()])
    for number in range(1, 65):
        try:
            handler = signal.getsignal(number)
        except ValueError:
            continue
        if handler not in (signal.SIG_DFL, None):
            say("signal %d" % number, getattr(handler, "__name__", handler))
    say("signal timer", signal.getitimer(signal.ITIMER_REAL))
    if hasattr(signal, "pthread_sigmask"):
        say("signal mask", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    say("atexit", getattr(atexit, "_ncallbacks", len)() if hasattr(atexit, "_ncallbacks") else None)
    say("fork hooks", hasattr(os, "register_at_fork"))
    if hasattr(gc, "get_threshold"):
        say("gc", (gc.isenabled(), gc.get_threshold(), getattr(gc, "callbacks", None)))
    random.seed(5)
    say("random", random.getrandbits(60))
    say("cwd", os.getcwd())
    for key in sorted(os.environ):
        say("environ " + key, os.environ[key])


def process():
    """What /proc/self tells, without what varies."""
    import os

    varies = ("Pid", "Tgid", "Ngid", "NSpid", "NStgid", "State", "VmPeak", "VmSize", "VmHWM", "VmRSS", "VmData", "VmStk",
              "VmExe", "VmLib", "VmPTE", "VmSwap", "RssAnon", "RssFile", "RssShmem", "SigQ", "voluntary_ctxt_switches",
              "nonvoluntary_ctxt_switches")
    for line in open("/proc/self/status"):
        name, value = line.split(":", 1)
        if name not in varies:
            say("status " + name, value)
    for line in open("/proc/self/limits"):
        say("limits " + line[:26].strip(), line[26:])
    stat = open("/proc/self/stat").read()
    fields = stat[stat.rindex(")") + 2:].split()
    kept = {2: "ppid", 3: "pgrp", 4: "session", 5: "tty_nr", 6: "tpgid", 7: "flags", 16: "priority", 17: "nice", 18: "num_threads",
            19: "itrealvalue", 29: "signal", 30: "blocked", 31: "sigignore", 32: "sigcatch", 36: "exit_signal",
            38: "rt_priority", 39: "policy"}
    # That the process has used privileges (PF_SUPERPRIV) tells of who made the root it runs in.
    fields[6] = str(int(fields[6]) & ~0x100)
    for place in sorted(kept):
        say("stat " + kept[place], fields[place - 1])
    for fd in sorted(int(f) for f in os.listdir("/proc/self/fd")):
        try:
            say("fd %d" % fd, os.readlink("/proc/self/fd/%d" % fd))
        except OSError:
            pass  # of the listing itself
    for name in ("cgroup", "oom_score_adj", "oom_adj", "coredump_filter", "personality", "timerslack_ns", "loginuid",
                 "sessionid", "setgroups", "uid_map", "comm", "cpuset", "mountinfo", "cmdline"):
        try:
            with open("/proc/self/" + name) as f:
                text = f.read().replace("\0", " ")
                say("proc " + name, text if len(text) < 2000 else hash_of(text))
        except (IOError, OSError):
            pass
    for name in sorted(os.listdir("/proc/self/ns")):
        say("ns " + name, os.readlink("/proc/self/ns/" + name))
    for name in ("exe", "root", "cwd"):
        say("proc " + name, os.readlink("/proc/self/" + name))
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/comm" % task) as f:
            FOUND.append("task comm\t" + f.read().strip())
    with open("/proc/self/maps") as f:
        for name in sorted(set(line.split(None, 5)[5].strip() for line in f if len(line.split(None, 5)) == 6)):
            say("mapped " + name, "there")


def hash_of(text):
    import zlib
    return zlib.crc32(text.encode("utf-8"))


def library(torch):
    say("torch threads", (torch.get_num_threads(), torch.get_num_interop_threads()))
    torch.manual_seed(3)
    say("torch random", int(torch.randint(1 << 60, ())))
    say("torch start method", torch.multiprocessing.get_start_method(allow_none=True))
    say("torch sharing", torch.multiprocessing.get_sharing_strategy())
    utils = torch.utils.data._utils
    say("torch pids", getattr(utils.signal_handling, "_SIGCHLD_handler_set", None))
    for name in ("DataLoader", "Dataset", "IterableDataset", "get_worker_info", "default_collate"):
        thing = getattr(torch.utils.data, name, None)
        say("torch.utils.data." + name, sorted(vars(thing)) if isinstance(thing, type) else getattr(thing, "__module__", None))


def main():
    torch = None
    if "torch" in sys.argv:
        import torch
    interpreter()
    libraries()
    if "proc" in sys.argv:
        process()
    if torch is not None:
        library(torch)
    with open(sys.argv[1], "w") as out:
        out.write("\n".join(FOUND) + "\n")
    print("to stdout")
    print("to stderr", file=sys.stderr)
    sys.exit(7)


if __name__ == "__main__":
    main()
