"""Replacing the workers of a loader over an IterableDataset, at its next epoch.

The place in the data lives in those workers, so none is replaced while an epoch
runs. When a persistent loader begins a new one, torch resets its workers: there,
and only there, torch ends all of them and starts them again, as a loader without
persistent_workers does for every epoch. A request waits for that.

The order of the data must not change by it. The draws that torch makes for the
new workers come from a generator of our own, seeded from the seed of the workers
before: the program's generators are left where torch would have left them, and
no worker draws what another drew. The iterator stays the same object, which is
what torch's own hands out in every epoch.
"""
import contextlib
import dis
import inspect
import os
import time
import weakref

from _rsswarden import birth, descriptors, guard

DEFERRED = "put off to the loader's next epoch"
_RETRIES = (0.1, 0.4, 1.0, 2.0, 4.0)  # seconds until a fork that was refused is tried again
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Held:
    """The requests that wait for the next epoch of one loader."""

    def __init__(self, loader):
        self.loader = weakref.ref(loader)
        self.requests = []  # id, PID, mode

    def __bool__(self):
        return bool(self.requests)

    def __iter__(self):
        return iter(self.requests)

    def take(self, recycler, iterator, number, pid, mode):
        """Keeps a request, or refuses it where no next epoch will come."""
        loader = self.loader()
        if pid not in recycler.pids:
            recycler.refuse(number, pid, "process has ended")
        elif loader is None or loader._iterator is not iterator:
            recycler.refuse(number, pid, "iterable dataset: its loader has let go of it, no further epoch")
        elif any(value is iterator for name, value in vars(loader).items() if name != "_iterator"):
            # An endless wrapper, such as FastDataLoader, calls its loader's __iter__ once.
            recycler.refuse(number, pid, "iterable dataset: its loader keeps one iterator, no further epoch")
        else:
            self.requests.append((number, pid, mode))
            recycler.side.say("accepted", n=recycler.number, id=number, worker=pid, mode=mode, why=DEFERRED)


def begin(recycler, loader, iterator):
    """Has the recycler keep requests for the next epoch, or says why there is none to wait for."""
    if not loader.persistent_workers:
        recycler.why = "iterable dataset: its workers hold the position, and end with the epoch"
    elif (type(iterator).__module__, type(iterator).__name__) != (
            "torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter"):
        recycler.why = "iterable dataset: its iterator is not torch's own"
    elif getattr(iterator, "_pg", None) is not None:
        recycler.why = "iterable dataset: a datapipe that shares its seed among ranks"
    else:
        # torch passes each epoch to datapipes, fresh ones too.
        recycler.why = keeps(iterator._dataset) if getattr(iterator, "_shared_seed", None) is None else None
    recycler.held = Held(loader) if recycler.why is None else None


def keeps(dataset):
    """Says how the dataset itself keeps what an epoch leaves behind, or None: a fresh worker would not have it."""
    if hasattr(type(dataset), "__next__"):
        return "iterable dataset: it is its own iterator, its workers hold the position"
    code = getattr(inspect.unwrap(getattr(type(dataset), "__iter__", None)), "__code__", None)
    for instruction in dis.get_instructions(code) if code is not None else ():
        if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
            return "iterable dataset: its __iter__ sets .%s, which its workers hold" % instruction.argval
    return None


def due(recycler, iterator, loader):
    """Says whether the workers are to be replaced now that a new epoch begins."""
    held = recycler.held
    if held is None:
        return False
    todo, recycler.todo = recycler.todo, []
    for number, pid, mode in todo:
        held.take(recycler, iterator, number, pid, mode)
    wanted = {number for number, _, _ in recycler.side.recycles}
    for number, pid, _ in held.requests:
        if number not in wanted:
            recycler.refuse(number, pid, "taken back")
    held.requests = [request for request in held.requests if request[0] in wanted]
    untried = recycler.torch.untried() if held else None
    if untried is not None:
        refused, held.requests = held.requests, []
        for number, pid, _ in refused:
            recycler.refuse(number, pid, untried)  # not for good
    why = None
    if held:
        why = birth.forbids(recycler.context) or birth.unpicklable(iterator, recycler.context, recycler.torch.filled)
    if why is not None:
        recycler.why, recycler.held = why, None
        for number, pid, _ in held.requests:
            recycler.refuse(number, pid, why)
        return False
    return bool(held) and loader._iterator is iterator and not iterator._shutdown


def let_go(recycler):
    """Returns the requests that waited, which wait no more."""
    held, recycler.held = recycler.held, None
    return held.requests if held is not None else []


class Renewal:
    """The end of an iterator's workers between two epochs, and the birth of new ones."""

    def __init__(self, recycler, iterator, loader):
        import torch  # which is there already

        self._torch, self._signals = torch, recycler.torch.utils.signal_handling
        self._loader, self._side = loader, recycler.side
        self._began, self._pipes = time.perf_counter(), recycler.pipes
        self._requests, recycler.held.requests = recycler.held.requests, []
        self._old = list(iterator._workers)
        self._before = [_rss(process.pid) for process in self._old]
        self._generator = loader.generator
        self._datapipe = getattr(iterator, "_shared_seed", None) is not None
        self._own = torch.Generator()
        if self._datapipe:
            # The seed that all workers share is to be the one that torch would draw for this epoch.
            self._own.set_state((self._generator or torch.default_generator).get_state())
        else:
            self._own.manual_seed((iterator._base_seed + recycler.workers) % (1 << 63))

    def run(self, iterator):
        """Ends the iterator's workers and restarts it.

        What torch raises here it would raise for a loader without
        persistent_workers too. A fork that is refused is tried again for a while:
        there is no way back once the workers have ended.
        """
        iterator._shutdown_workers()
        object.__setattr__(self._loader, "generator", self._own)
        try:
            with contextlib.nullcontext() if self._pipes is None else descriptors.without(self._pipes):
                new = self._build(type(iterator))
        finally:
            object.__setattr__(self._loader, "generator", self._generator)
        if self._datapipe:
            self._torch.empty((), dtype=self._torch.int64).random_(generator=self._generator)
        # torch's handler of SIGCHLD knows the workers of an iterator by its address.
        self._signals._set_worker_pids(id(iterator), tuple(process.pid for process in new._workers))
        self._signals._remove_worker_pids(id(new))
        iterator.__dict__, new.__dict__ = new.__dict__, iterator.__dict__

    def _build(self, kind):
        for pause in _RETRIES + (None,):
            new = kind.__new__(kind)
            try:
                new.__init__(self._loader)
                return new
            except (OSError, RuntimeError) as error:  # the latter for a thread that cannot be started
                _undo(new, self._signals)
                if pause is None or not guard.ours(error):
                    raise
                time.sleep(pause)

    def report(self, recycler):
        """Answers the requests; recycler is that of the new workers."""
        codes = [birth.outcome(process, birth.end(process, 1))["exit"] for process in self._old]  # torch has told them to
        recycler.pipes = self._pipes
        paused = (time.perf_counter() - self._began) * 1e3
        ids = {}
        for number, pid, _ in self._requests:
            ids.setdefault(pid, []).append(number)
        for process, before, pid, code in zip(self._old, self._before, recycler.pids, codes):
            for number in ids.pop(process.pid, (0,)):
                self._side.say("recycled", n=recycler.number, id=number, worker=process.pid, new=pid, mode="drain",
                               before=before, after=_rss(pid), pause_ms=paused, exit=code, why=DEFERRED)
            paused = 0.0  # all were replaced in one


def _undo(iterator, signals):
    """Ends the workers of an iterator that could not be made, and drops what they have."""
    iterator._shutdown = True
    if getattr(iterator, "_worker_pids_set", False):
        signals._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    if hasattr(iterator, "_pin_memory_thread_done_event"):
        iterator._pin_memory_thread_done_event.set()
    for process in getattr(iterator, "_workers", ()):
        process.kill()
        process.join()
    for index_queue in getattr(iterator, "_index_queues", ()):
        index_queue.close()


def _rss(pid):
    """Returns the RSS of a process in bytes, 0 where it cannot be read."""
    try:
        fd = os.open("/proc/%d/statm" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 256).split()[1]) * _PAGE
        finally:
            os.close(fd)
    except (OSError, ValueError, IndexError):
        return 0
