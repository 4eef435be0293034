"""Runs a training script and says what it cost, as a last line of JSON.

    overhead.py [timed] SCRIPT [ARG...]

seconds   the script's own time, torch's import not included
work      processor time of the training itself and of its workers, in s, of seconds
cpu       processor time of the parent and of its watcher, in s, where the
          parent is rsswarden, from their start on
hook      time inside rsswarden's hook, in s, in the trainer and all its workers;
          with "timed" only. What the hook does once, when torch is imported, is
          not in it.
"""
import glob
import importlib
import json
import mmap
import os
import resource
import runpy
import struct
import sys
import time

SLOTS = 4096


def timed(shared):
    """Has every entry of the hook's add its time to the slot of its process."""
    patch = sys.modules["_rsswarden.patch"]
    iterators = importlib.import_module("_rsswarden.iterators")

    def watched(function):
        def inner(*arguments):
            began = time.perf_counter_ns()
            try:
                return function(*arguments)
            finally:
                took = time.perf_counter_ns() - began
                at = os.getpid() % SLOTS * 8
                was, = struct.unpack_from("q", shared, at)
                struct.pack_into("q", shared, at, was + took)
        return inner

    for owner, names in (
            (patch, ("_over", "_watch", "_made", "_ending")),
            (iterators, ("_dead", "_replaced", "_settle", "_renewal", "_renewed")),
            (patch._Before, ("__get__",)), (patch._Fetch, ("__get__",))):
        for name in names:
            setattr(owner, name, watched(getattr(owner, name)))


def running(pid):
    """Returns the processor time of all threads of a process, in s."""
    total = 0
    for name in glob.glob("/proc/%d/task/*/schedstat" % pid):
        with open(name) as f:
            total += int(f.read().split()[0])
    return total / 1e9


def work():
    """Returns the processor time of this process and of its children that have ended, in s."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both)


def supervisors():
    """Returns the PIDs of our parent and its watcher, none where it is not rsswarden."""
    parent, found = os.getppid(), []
    with open("/proc/%d/comm" % parent) as f:
        if f.read().strip() != "rsswarden":
            return []
    for name in glob.glob("/proc/%d/task/*/children" % parent):
        with open(name) as f:
            for pid in map(int, f.read().split()):
                with open("/proc/%d/cmdline" % pid, "rb") as g:
                    if g.read().startswith(b"rss-watcher\0"):
                        found.append(pid)
    return [parent] + found


def main():
    args = sys.argv[1:]
    shared = None
    if args[0] == "timed":
        args, shared = args[1:], mmap.mmap(-1, SLOTS * 8)
    import torch.utils.data  # noqa: F401  the hook is there from here on

    said = {"hooked": "_rsswarden.patch" in sys.modules}
    if shared and said["hooked"]:
        timed(shared)
    sys.argv = args
    sys.path.insert(0, os.path.dirname(os.path.abspath(args[0])))
    began, used, status = time.perf_counter(), work(), 0
    try:
        runpy.run_path(args[0], run_name="__main__")
    except SystemExit as end:
        status = end.code
    said["seconds"] = time.perf_counter() - began
    said["work"] = work() - used
    pids = supervisors()
    said["supervisors"] = len(pids)
    said["cpu"] = sum(map(running, pids))
    if shared:
        said["hook"] = sum(struct.unpack("%dq" % SLOTS, shared)) / 1e9
    print(json.dumps(said), flush=True)
    sys.exit(status)


main()
