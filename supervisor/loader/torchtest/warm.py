"""Imports torch once and runs programs in forks of itself, each asked for by a line of JSON on standard input.

A program finds the interpreter as it would be had it started by itself: the modules that the hook waits for
are imported in the fork, after sitecustomize. Answers are [PID, null] for the fork of the last line and
[PID, wait status] for one that has ended.
"""
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import types

import torch

WAITED = ("torch.utils.data", "multiprocessing.pool", "concurrent.futures.process")
again = [name for name in WAITED if name in sys.modules]
for name in list(sys.modules):
    if name in WAITED or name.startswith("torch.utils.data."):
        del sys.modules[name]
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(child, None)
path, ended, wake = sys.path[1:], *os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
signal.signal(signal.SIGCHLD, lambda *_: None)


def answer(*what):
    os.write(1, json.dumps(what).encode() + b"\n")


def serve():
    """Returns what to run, in a fork; the process itself ends with its input."""
    rest, living = b"", set()
    while True:
        if ended in select.select([0, ended], [], [])[0]:
            os.read(ended, 1 << 16)
            for pid in list(living):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    living.discard(pid)
                    answer(pid, status)
            continue
        data = os.read(0, 1 << 20)
        if not data:
            os._exit(0)
        *lines, rest = (rest + data).split(b"\n")
        for args, env, *files in map(json.loads, lines):
            opened = [os.open(os.devnull, os.O_RDONLY)] + [os.open(name, os.O_WRONLY) for name in files]
            pid = os.fork()
            if not pid:
                return args, env, opened
            os.setpgid(pid, pid)  # here, too: its group may be killed as soon as the answer is there
            for fd in opened:
                os.close(fd)
            living.add(pid)
            answer(pid, None)


def become(args, env, opened):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.close(ended)
    os.close(wake)
    for fd, file in enumerate(opened):
        os.dup2(file, fd)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    sys.argv = args
    sys.path[:] = [part for part in env.get("PYTHONPATH", "").split(":") if part] + path
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError:
        pass
    sys.path.insert(0, os.path.dirname(args[0]))
    for name in again:
        importlib.import_module(name)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = args[0]
    with open(args[0]) as file:
        return compile(file.read(), args[0], "exec"), vars(main)


exec(*become(*serve()))
