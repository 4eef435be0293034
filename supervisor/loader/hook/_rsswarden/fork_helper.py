"""A process of ours that forks replacements, in place of the trainer.

fork(2) copies the page tables of the process that calls it, which stands still
meanwhile; one with memory registered with an InfiniBand adapter must not call
it at all. So a helper is forked right behind a loader's first workers, where it
adds no danger to theirs. It has what they were given, waits, and forks itself when
asked: by clone(2) with CLONE_PARENT, so that the new worker is the trainer's
own child, like any other. The trainer asks at one batch and reads the answer at a
later one.

What the data set has become since is not known there: changes says whether it
changed, and then the trainer forks as without a helper. It does so as well where the
helper has ended, refuses, or does not answer.

The clone does what fork of glibc does, but for handlers of pthread_atfork: they
ran when the helper was forked, and its one thread has run nothing but this
module since. A C library where that is not enough is found out before the
helper is used.
"""
import array
import ctypes
import functools
import gc
import json
import os
import queue
import select
import signal
import socket
import time
import weakref
from multiprocessing import connection, popen_fork, reduction, util

from _rsswarden import birth, changes, channel, collect, descriptors, guard

LEAST = 1 << 30  # bytes of anonymous memory in small pages from which on forking the trainer takes long
_PART = 4  # a helper is made where it can hold so little of what is left below the limits
_PATIENCE = 10.0  # seconds until an answer is given up
_LOOK = 1.0  # seconds between two looks of a helper at whether its trainer lives, and whether it is itself to end

# Of clone(2): its number, which argument the child's thread id is; of set_robust_list(2) its number; get follows.
_CALLS = {"x86_64": (56, 3, 273), "aarch64": (220, 4, 99)}
_PARENT, _TID = 0x8000, 0x01000000 | 0x00200000  # CLONE_PARENT; CLONE_CHILD_SETTID and _CLEARTID
_TID_ADDRESS = 40  # PR_GET_TID_ADDRESS


class _Fork:
    """os.fork with another parent for the child. For a process of one thread, whose fork it is made in."""

    def __init__(self):
        if os.uname().machine not in _CALLS or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise birth.Refused("not known for %s" % os.uname().machine)
        self._library = ctypes.PyDLL(None, use_errno=True)  # which keeps the interpreter's lock
        clone, place, self._set = _CALLS[os.uname().machine]
        self._library.syscall.restype = ctypes.c_long
        tid, head, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self._library.prctl(_TID_ADDRESS, ctypes.byref(tid), *[ctypes.c_ulong()] * 3)
        self._call(self._set + 1, ctypes.c_long(), ctypes.byref(head), ctypes.byref(size))
        if not tid or not head:
            raise birth.Refused("the kernel does not say where the C library keeps a thread's id")
        self._tid, self._robust = ctypes.c_int.from_address(tid.value), (head, size)
        arguments = [ctypes.c_void_p()] * 5
        arguments[place] = tid
        self._clone = functools.partial(self._call, clone, ctypes.c_long(_TID | _PARENT | signal.SIGCHLD), *arguments[1:])
        self._probe = functools.partial(self._call, clone, ctypes.c_long(_TID | signal.SIGCHLD), *arguments[1:])
        self._fork = os.fork

    def _call(self, number, *arguments):
        return self._library.syscall(ctypes.c_long(number), *arguments)

    def __call__(self):
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
        pid = self._clone()
        if pid == 0:
            self._call(self._set, *self._robust)
            python.PyOS_AfterFork_Child()
            os.fork = self._fork
            return 0
        python.PyOS_AfterFork_Parent()
        return self._known(pid)

    @staticmethod
    def _known(pid):
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid

    def check(self):
        """Finds out whether the C library knows its own process in a clone, by a child that only looks, without what the program does at forks."""
        if not self._sees(os.getpid()):
            raise birth.Refused("this C library keeps a thread's id elsewhere")
        pid = self._probe()
        if pid == 0:
            try:
                os._exit(0 if self._sees(int(os.readlink("/proc/self"))) else 1)
            finally:
                os._exit(2)
        if os.waitpid(self._known(pid), 0)[1] != 0:
            raise birth.Refused("this C library does not know its process in a clone")

    def _sees(self, pid):
        return os.getpid() == pid == self._tid.value


class _Reader:
    """A worker's end of its index queue. It alone reads and the trainer alone writes, so that no lock is needed."""

    def __init__(self, fd):
        self._reader = connection.Connection(fd, writable=False)

    def get(self, block=True, timeout=None):
        if not self._reader.poll(timeout if block else 0):
            raise queue.Empty
        try:
            data = self._reader.recv_bytes()
        except EOFError:
            os._exit(0)  # the trainer has ended, or has given this worker up
        return reduction.ForkingPickler.loads(data)


def _send(end, said, fds=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    end.sendmsg([json.dumps(said).encode()], rights, socket.MSG_NOSIGNAL)


def _receive(end):
    """Returns what was said, None at the end, and the descriptors that came with it."""
    fds = array.array("i")
    space = socket.CMSG_SPACE(2 * fds.itemsize)
    try:
        data, rights, _, _ = end.recvmsg(4096, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # it ended without reading all; what it had said comes next
        data, rights, _, _ = end.recvmsg(4096, space, socket.MSG_CMSG_CLOEXEC)
    for _, _, some in rights:
        fds.frombytes(some)
    return json.loads(data) if data else None, list(fds)


class _Serving:
    """What the helper runs. It stands for a process of multiprocessing, whose Popen forks it."""

    def __init__(self, end, other, mask, context, loop, filled, values):
        self._end, self._other, self._mask, self._trainer = end, other, mask, os.getpid()
        self._context, self._loop, self._filled, self._values = context, loop, filled, values
        self._collects, self._found = gc.isenabled(), descriptors.positions()

    def _bootstrap(self, parent_sentinel=None):
        try:
            self._other.close()
            gc.disable()  # what it would find is the trainer's, and finalizers are the program's
            self._serve()
        finally:
            os._exit(0)  # multiprocessing's own end would end the trainer's workers

    def _serve(self):
        try:
            fork = _Fork()
            fork.check()
        except Exception as error:
            _send(self._end, {"why": str(error) if isinstance(error, birth.Refused) else guard.describe(error)})
            return
        _send(self._end, {"why": ""})
        news = select.poll()
        news.register(self._end, select.POLLIN)
        while os.getppid() == self._trainer and signal.SIGTERM not in signal.sigpending():
            if not news.poll(_LOOK * 1e3):
                continue
            asked, fds = _receive(self._end)
            if asked is None:
                return
            popen, plain = None, os.fork
            try:
                os.fork = fork
                popen = popen_fork.Popen(self._worker(asked, *fds))
                _send(self._end, {"pid": popen.pid}, popen.finalizer._args)
            except Exception as error:
                if popen is not None:
                    os.kill(popen.pid, signal.SIGKILL)  # a child of the trainer's, which does not know it and so has not waited for it
                _send(self._end, {"why": getattr(error, "strerror", None) or guard.describe(error)})
            finally:
                os.fork = plain
            if popen is not None:
                popen.close()

    def _worker(self, asked, fd):
        """Returns the process that the trainer would have made; this one is not multiprocessing's current one, the trainer is."""
        own = {"index_queue": _Reader(fd), "worker_id": asked["worker_id"], "base_seed": asked["base_seed"]}
        process = self._context.Process(target=self._begin, args=birth.arguments(self._filled, own, self._value))
        process._identity, process._name, process._parent_pid = tuple(asked["identity"]), asked["name"], self._trainer
        process.daemon = True
        return process

    def _value(self, how, attribute):
        return [self._values[attribute]] if how == "in" else self._values[attribute]

    def _begin(self, *arguments):
        """What the worker runs."""
        self._end.close()
        if self._collects:
            gc.enable()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        birth.born(self._found, self._loop, *arguments)


class _Popen(popen_fork.Popen):
    """A child that the helper forked, as start of multiprocessing's Process takes it."""

    def __init__(self, pid, fds, process):
        self.pid, self.sentinel, self.returncode = pid, fds[0], None
        self.finalizer = util.Finalize(self, util.close_fds, fds)


class Asked:
    """A worker that the helper was asked for."""

    def __init__(self, process, index_queue, ready):
        self.process, self.queue, self.ready, self.until = process, index_queue, ready, time.monotonic() + _PATIENCE


_ENDED = "it has ended"


class Helper:
    """The trainer's end. Whatever it raises, it is of no more use then."""

    def __init__(self, iterator, context, loop, filled, cost):
        self.cost = cost  # bytes that it may keep in memory, at most
        self._context, self._loop = context, loop
        self._names = birth.needed(filled)
        values = self._given(iterator)
        self._seen = changes.of(values)
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end = weakref.finalize(self, _close, self._socket, os.getpid())
        # No handler of the program's may run in the helper; its workers get the mask that the first ones have.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._popen = popen_fork.Popen(_Serving(other, self._socket, mask, context, loop, filled, values))
        finally:
            other.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._socket.setblocking(False)
        self.pid = self._popen.pid

    def _given(self, iterator):
        return {name: getattr(iterator, name) for name in self._names}

    def check(self, iterator):
        """Refuses where it is seen that what workers are given has changed."""
        changed = changes.first(self._seen, changes.of(self._given(iterator)))
        if changed is not None:
            raise birth.Refused("changed since it was made: %s" % changed)

    def ask(self, worker_id, base_seed, ready):
        """Asks for a worker, which makes the file ready once it is up."""
        index_queue = self._context.Queue()
        index_queue.cancel_join_thread()
        index_queue._ignore_epipe = True  # where it is given up, its thread would print that
        process = self._context.Process(target=self._loop)
        process.daemon = True
        try:
            _send(self._socket, {"worker_id": worker_id, "base_seed": base_seed, "name": process.name,
                                 "identity": process._identity}, [index_queue._reader.fileno()])
            birth.put(index_queue, birth.Probe(ready))
        except BaseException as error:
            why = self._why() if isinstance(error, OSError) else None
            self.close()
            index_queue.close()
            if why is not None:
                raise birth.Refused(why)
            raise
        return Asked(process, index_queue, ready)

    def _why(self):
        """Returns what a helper said that does not listen any more."""
        said = {}
        try:
            while said is not None and not said.get("why"):
                said, _ = _receive(self._socket)
        except OSError:
            said = None
        return said["why"] if said else _ENDED

    def answer(self, asked, wait=False):
        """Returns the process once it is there, None for not yet; wait: only once it is."""
        pid = fds = None
        try:
            while pid is None:
                try:
                    said, fds = _receive(self._socket)
                except BlockingIOError:
                    if time.monotonic() > asked.until:
                        raise birth.Refused("no answer in %d s" % _PATIENCE)
                    if not wait:
                        return None
                    news = select.poll()
                    news.register(self._socket, select.POLLIN)
                    news.poll(100)
                    continue
                except OSError:
                    said = None
                if said is None or said.get("why"):
                    raise birth.Refused(said["why"] if said else _ENDED)
                pid = said.get("pid")
            if pid is not None and len(fds) != 2:
                raise birth.Refused("its descriptors did not come through")
            asked.process._Popen = functools.partial(_Popen, pid, tuple(fds))
            asked.process.start()
        except BaseException:
            self.close()
            asked.queue.close()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                _wait(pid, 1.0)
            raise
        return asked.process

    def close(self):
        """Has the helper end."""
        self._end()
        self._popen.close()

    def reap(self, patience=0.0):
        """Waits for the end of a helper that was closed, which the program may have done; says whether it has ended."""
        return _wait(self.pid, patience)


def _wait(pid, patience):
    """Waits for the end of a child; says whether it has ended."""
    until = time.monotonic() + patience
    try:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)
    except ChildProcessError:
        pass
    return True


def _close(end, pid):
    """Closes the trainer's end: for good where this is the trainer, and not a child of it that has a copy."""
    if os.getpid() == pid:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended
    end.close()


def _in_small_pages(anonymous):
    """Returns how much of this process's anonymous memory is in small pages: a huge one takes a fork next to no time."""
    if anonymous >= LEAST:  # else it is not worth the reading
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file.read().splitlines():
                if line.startswith(b"AnonHugePages:"):
                    anonymous -= int(line.split()[1]) << 10
    return anonymous


def make(recycler, iterator, loader):
    """Returns a helper for a new iterator over a map data set, or None where it would be of no use or take too much."""
    if recycler.context.get_start_method(allow_none=True) != "fork":
        return None
    try:
        anonymous, left = collect.anonymous(), channel.setting("left")
        if anonymous * _PART > left or birth.forbids(recycler.context) is None and _in_small_pages(anonymous) < LEAST:
            return None
        return Helper(iterator, recycler.context, recycler.torch.loop, recycler.torch.filled, anonymous)
    except Exception as error:
        if not guard.ours(error):
            raise
        recycler.side.say("refused", n=recycler.number, why="fork helper: " + guard.describe(error))
        return None
