"""The places in torch where the hook is called.

Each wrapper calls what it wraps with the program's own arguments, once, and
outside of any guard; what is ours stands before and after it, guarded.
"""
import multiprocessing
import os
import weakref

from _rsswarden import birth, channel, epoch, guard, recycle, trim

_VERSIONS = ("1.13",)  # of torch, whose internals were run with recycling

_off = False  # nothing new is begun in this process
_process = None  # what this process is; a forked child makes its own
_torch = None


class _Torch:
    """The parts of torch in use, and why recycling is not possible with them, or None."""

    def __init__(self, dataloader):
        import torch

        self.version = torch.__version__
        self.utils = dataloader._utils
        self.multiprocessing = getattr(dataloader, "multiprocessing", None) or torch.multiprocessing
        self.loop, self.names, self.why = None, (), None
        try:
            self._check(dataloader)
        except Exception as error:
            self.why = guard.describe(error)

    def _check(self, dataloader):
        self.loop = self.utils.worker._worker_loop
        self.names, self.why = birth.parameters(self.loop)
        if ".".join(self.version.split("+")[0].split(".")[:2]) not in _VERSIONS:
            self.why = "torch %s has not been tried" % self.version
        iterator = dataloader._MultiProcessingDataLoaderIter
        for owner, names in (
                (iterator, ("__init__", "_next_data", "_try_get_data", "_get_data", "_try_put_index", "_reset",
                            "_shutdown_workers")),
                (self.utils.signal_handling, ("_set_worker_pids", "_remove_worker_pids"))):
            for name in names:
                if not hasattr(owner, name):
                    self.why = "torch has no %s" % name


class _Process:
    """What the hook keeps of one process."""

    def __init__(self):
        self.pid = os.getpid()
        self.worker = getattr(_torch.utils.worker, "_worker_info", None) is not None
        trainer = None
        if self.worker:
            parent = multiprocessing.parent_process()
            trainer = os.getppid() if parent is None else parent.pid
        self.side = channel.Side(trainer)
        self.trimmer = trim.Trimmer(self.side)
        self.recyclers = weakref.WeakSet()
        self.loaders = 0
        self.fetches = False
        self.version = 0  # of the ctl file whose requests were given out
        self.taken = set()  # ids of requests that were given out
        if not self.worker:
            self.side.hello(_torch.version, _torch.why is None, _torch.why)


def _here():
    """Returns this process's own _Process."""
    global _process
    if _process is None or _process.pid != os.getpid():
        _process = _Process()
    return _process


def _failed(error):
    """Turns the hook off for an error of its own; raises what is the program's."""
    global _off
    if not guard.ours(error):
        raise error
    first, _off = not _off, True
    try:
        if first:
            _here().side.say("off", why=guard.describe(error))
    except Exception:
        pass


def _guarded(function, *arguments):
    """Returns what function returns, or None where it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        _failed(error)


def install(dataloader):
    """Patches the module torch.utils.data.dataloader and says hello."""
    global _torch
    _torch = _Torch(dataloader)
    fetch = _torch.utils.fetch
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(fetch, name, None)
        if fetcher is not None and not hasattr(fetcher.fetch, "_rsswarden"):
            fetcher.fetch = _fetch(fetcher.fetch)
    if _torch.why is None:
        _patch_iterator(dataloader._MultiProcessingDataLoaderIter)
    # A child of multiprocessing may be anything: it says hello once it owns a loader.
    if multiprocessing.parent_process() is None:
        _here()


def _fetch(original):
    """Wraps a fetcher's fetch, which runs in a worker, or in the trainer where that has none."""

    def fetch(self, possibly_batched_index):
        watched = None if _off else _guarded(_before_fetch, self, possibly_batched_index)
        if watched is None:
            return original(self, possibly_batched_index)
        data = original(self, watched)
        _watch()
        return data

    fetch._rsswarden = True
    return fetch


def _before_fetch(fetcher, index):
    """Does what the ctl file asks for; returns the indices of the batch with the budget watched between, or None."""
    process = _here()
    if not process.fetches:
        process.fetches = True
        if not process.worker:
            process.side.say("iter", n=0, kind="any", num_workers=0, persistent=False, workers=[],
                             can_recycle=False, why="the trainer loads for itself")
    process.side.look()
    process.trimmer.requests()
    if not process.side.budget:
        return None
    process.trimmer.budget()
    if type(index) is not list or not fetcher.auto_collation or getattr(fetcher.dataset, "__getitems__", None):
        return None
    return trim.Watched.over(index, _watch)


def _watch():
    if not _off:
        _guarded(_keep)


def _keep():
    _here().trimmer.budget()


def _patch_iterator(iterator_class):
    """Wraps the methods of the iterator that has workers."""
    if hasattr(iterator_class._next_data, "_rsswarden"):
        return
    original_init = iterator_class.__init__
    original_next = iterator_class._next_data
    original_try = iterator_class._try_get_data
    original_reset = iterator_class._reset
    original_shutdown = iterator_class._shutdown_workers

    def __init__(self, loader):
        original_init(self, loader)
        if not _off:
            _guarded(_made, self, loader)

    def _next_data(self):
        _guarded(_poll, self)
        try:
            return original_next(self)
        except StopIteration:
            _guarded(_poll, self)
            raise

    def _try_get_data(self, *arguments, **keywords):
        got = original_try(self, *arguments, **keywords)
        if not got[0]:
            dead = _guarded(_dead, self)
            if dead:
                raise RuntimeError("DataLoader worker (pid(s) {}) exited unexpectedly".format(dead))
        return got

    def _reset(self, loader, first_iter=False):
        if not first_iter:
            while _guarded(_owed, self):
                index, _ = self._get_data()
                _guarded(_received, self, index)
            _guarded(_settle, self)
        return original_reset(self, loader, first_iter)

    def _shutdown_workers(self):
        ending = _guarded(_ending, self)
        try:
            return original_shutdown(self)
        finally:
            if ending is not None:
                _guarded(ending.finish)

    _next_data._rsswarden = True
    iterator_class.__init__ = __init__
    iterator_class._next_data = _next_data
    iterator_class._try_get_data = _try_get_data
    iterator_class._reset = _reset
    iterator_class._shutdown_workers = _shutdown_workers


def _recycler(iterator):
    """Returns the iterator's recycler, or None: it was made before us, or in another process."""
    recycler = iterator.__dict__.get("_rsswarden")
    if recycler is not None and recycler.side.pid == os.getpid():
        return recycler


def _made(iterator, loader):
    process = _here()
    process.loaders += 1
    context = loader.multiprocessing_context or _torch.multiprocessing
    recycler = recycle.Recycler(process.side, process.loaders, context, _torch)
    recycler.workers = iterator._num_workers
    recycler.pids = tuple(w.pid for w in iterator._workers)
    kind = "map" if iterator._dataset_kind == 0 else "iterable"
    if kind == "iterable":
        recycler.why = "iterable dataset: its workers hold the position"
    process.recyclers.add(recycler)
    iterator._rsswarden = recycler
    process.side.say("iter", n=recycler.number, kind=kind, num_workers=iterator._num_workers,
                     persistent=bool(iterator._persistent_workers), workers=list(recycler.pids),
                     start=context.get_start_method(allow_none=True), can_recycle=recycler.why is None,
                     why=recycler.why or "")


def _poll(iterator):
    recycler = _recycler(iterator)
    if recycler is None:
        return
    process = _here()
    if not _off:
        process.side.look()
        if process.version != process.side.version:
            _give_out(process)
    elif recycler.todo:
        recycler.todo, refused = [], recycler.todo
        for number, pid, _ in refused:
            recycler.refuse(number, pid, "the hook is off")
    recycler.poll(iterator)


def _give_out(process):
    """Gives the requests of the ctl file to the recyclers whose iterators have the workers."""
    process.version = process.side.version
    wanted = {number for number, _, _ in process.side.recycles}
    for recycler in process.recyclers:
        recycler.todo = [request for request in recycler.todo if request[0] in wanted]
    process.taken &= wanted
    for number, pid, mode in process.side.recycles:
        if number in process.taken:
            continue
        process.taken.add(number)
        for recycler in process.recyclers:
            if pid in recycler.pids:
                process.side.say("accepted", n=recycler.number, id=number, worker=pid, mode=mode)
                recycler.todo.append((number, pid, mode))
                break
        else:
            process.side.say("refused", id=number, worker=pid, why="no such worker")


def _dead(iterator):
    """Returns the PIDs of workers that were replaced, owe batches and have ended, for people."""
    recycler = _recycler(iterator)
    if recycler is None:
        return ""
    return ", ".join(str(t.old.pid) for t in recycler.leaving if not t.told and not t.old.is_alive())


def _owed(iterator):
    recycler = _recycler(iterator)
    return recycler is not None and epoch.owed(recycler, iterator)


def _received(iterator, index):
    epoch.received(_recycler(iterator), iterator, index)


def _settle(iterator):
    recycler = _recycler(iterator)
    if recycler is not None:
        epoch.settle(recycler, iterator)


def _ending(iterator):
    recycler = _recycler(iterator)
    utils = _torch.utils
    if recycler is None or iterator._shutdown or utils.python_exit_status is not False:
        return None
    return epoch.Ending(recycler, iterator)
