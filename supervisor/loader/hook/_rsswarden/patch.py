"""The places in torch where the hook is called, see iterators for the rest.

What is called once a batch is met where it is looked up (see _Before), so that
no frame of ours is in the program's tracebacks. Each other wrapper calls
what it wraps with the program's own arguments, once, and outside of any guard;
our code comes before and after it, guarded.
"""
import functools
import multiprocessing
import os
import sys
import time
import types
import weakref

from _rsswarden import channel, guard

# Seconds between two looks at the ctl file, which cost a stat: 25 us where a batch
# has emptied the caches. What was asked for is often followed by more.
_PAUSE, _SOON, _FOLLOWS = 0.05, 0.005, 2.0

_off = False  # nothing new is begun in this process
_process = None  # what this process is; a forked child makes its own
_torch = None
_is_first = True  # no iterator with workers was made yet
_torchdata = None  # its parts, once an iterator of its was made


def _load():
    """Imports the rest of the hook, in 10 ms: for a process that loads, and not for each that imports torch."""
    global collect, copies, epoch, growth, iterators, recycle, revive, sharing, trim
    from _rsswarden import collect, copies, epoch, growth, iterators, recycle, revive, sharing, trim


class _Torch:
    """The parts of torch in use, and why recycling is not possible with them, or None."""

    def __init__(self, dataloader):
        import torch

        self.version = getattr(torch, "__version__", "unknown")
        self.utils = getattr(dataloader, "_utils", None)
        self.module, self._multiprocessing = torch, getattr(dataloader, "multiprocessing", None)
        self.loop, self.filled, self.why = None, {}, None
        self._dataloader, self._is_read = dataloader, False
        self._constructor = getattr(getattr(dataloader, "_MultiProcessingDataLoaderIter", None), "__init__", None)
        self.key, self._digest, self.known, self.verdict = None, None, False, None
        self.unrevived = ""  # why workers that die are not replaced, found by the trial
        try:
            self._check(dataloader)
        except Exception as error:
            self.why = guard.describe(error)

    @property
    def multiprocessing(self):
        # In 2.6 torch imports its dataloader before its multiprocessing.
        return self._multiprocessing or self.module.multiprocessing

    def part(self, name):
        """Returns a module of torch.utils.data._utils, or None."""
        return getattr(self.utils, name, None)

    def _check(self, dataloader):
        """Looks at what costs nothing at the import of torch."""
        iterator = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
        for owner, names in (
                (iterator, ("__init__", "_next_data", "_try_get_data", "_get_data", "_try_put_index", "_reset", "_shutdown_workers")),
                (self.part("signal_handling"), ("_set_worker_pids", "_remove_worker_pids")),
                (self.part("worker"), ("_worker_loop",)),
                (dataloader, ("_MultiProcessingDataLoaderIter",))):
            for name in names:
                if not hasattr(owner, name):
                    self.why = "torch has no %s" % name
        if self.why is None:
            self.loop = self.utils.worker._worker_loop

    def read(self):
        """Finds in torch's text what recycling rests on, once, and says whether that is there; about 10 ms."""
        if self._is_read or self.why is not None:
            return self.why is None
        self._is_read, self.why = True, "torch's text was not read to its end"
        try:
            from _rsswarden import fingerprint

            got = fingerprint.read(self._dataloader, self._constructor)
            self.filled, self.key, why = got.filled, got.key, got.why
            if why is None:
                self.known, self._digest = fingerprint.is_known(got.digest), got.digest
        except Exception as error:
            if not guard.ours(error):
                raise
            why = guard.describe(error)
        self.why = why
        return why is None

    def untried(self):
        """Says why recycling may not be done yet with this torch here, or never, or None."""
        if self.why is None and self.part("worker")._worker_loop is not self.loop:
            self.why = "the program has replaced torch's _worker_loop"
        if self.known or self.why is not None:
            return self.why
        if self.verdict is None:
            self.verdict, self.unrevived = channel.verdict(self.key)
            if self.verdict not in (None, "ok"):
                self.why = "a trial with torch %s failed: %s" % (self.version, self.verdict)
        return self.why if self.verdict else "torch %s has not been tried here" % self.version

    def trial(self, iterator=None):
        """Returns the same in a word, and asks for a trial where iterator, which was made just now, has all that is needed."""
        self.read()
        self.untried()
        if self.why is None and iterator is not None and type(iterator) is self._dataloader._MultiProcessingDataLoaderIter:
            self.why = recycle.unknown(iterator, self.filled)
        if self.why is not None:
            return "refused"
        if self.known or self.verdict is not None:
            return "known" if self.known else "tried"
        channel.untried(self.key, digest=self._digest, torch=str(self.version), executable=sys.executable,
                        hook=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                        path=[os.path.abspath(p) for p in sys.path if isinstance(p, str)])
        return "waiting"


class _Process:
    """What the hook keeps of one process."""

    def __init__(self):
        self.pid = os.getpid()
        self.worker = getattr(_torch.part("worker"), "_worker_info", None) is not None
        trainer = None
        if self.worker:
            parent = multiprocessing.parent_process()
            trainer = os.getppid() if parent is None else parent.pid
        self.side = channel.Side(trainer)
        self.trimmer = self.collector = self.growth = None  # see begin
        self.recyclers = weakref.WeakSet()
        self.loaders = 0
        self.fetches = False
        self.next = 0.0  # when the ctl file is looked at again
        self.rest = 0.0  # until when there is nothing to be done at a fetch
        self.quiet = time.monotonic() + _FOLLOWS  # from when on that is done less often
        self.met = 0  # of the ctl file whose requests this process met itself
        self.version = 0  # of the ctl file whose requests were given out
        self.taken = set()  # ids of requests that were given out
        if self.worker:
            self.begin()
            copies.tell(self.side)
        else:
            self.side.hello(_torch.version, _torch.why is None, _torch.why)

    def begin(self):
        """Makes what acts in this process, once it loads."""
        if self.collector is not None:
            return
        _load()
        self.trimmer = trim.Trimmer(self.side)
        self.growth = growth.Growth(self.side) if self.worker else None
        self.collector = collect.Collector(self.side, self.worker)


def _here():
    """Returns this process's own _Process."""
    global _process
    if _process is None or _process.pid != os.getpid():
        _process = _Process()
    return _process


def _failed(error):
    """Turns the hook off for an error of its own; returns whether it is one."""
    global _off
    try:
        if not guard.ours(error):
            return False
        first, _off = not _off, True
        if first:
            _here().side.say("off", why=guard.describe(error))
    except Exception:
        _off = True
    return True


def _guarded(function, *arguments):
    """Returns what function returns, or None where it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        if _failed is not None and not _failed(error):  # None: see _shutdown_workers
            raise


class _Before:
    """A method of torch's, with a look of ours each time it is looked up on an object, which is before each call.

    A wrapper would be in every traceback of a program whose dataset raises.
    """

    def __init__(self, method, look):
        self._method, self._look = method, look

    def __get__(self, instance, owner=None):
        if instance is None:
            return self._method
        try:
            self._look(instance)
        except Exception as error:
            if not _failed(error):
                raise
        return types.MethodType(self._method, instance)


class _Fetch:
    """A fetcher's fetch, which runs in a worker, or in the trainer where that has none."""

    def __init__(self, method):
        self._method = method

    def __get__(self, fetcher, owner=None):
        if fetcher is None:
            return self._method
        try:
            process = _process
            if process is not None and process.pid == os.getpid():
                grown = process.growth
                if grown is not None:
                    grown.batches += 1
                    if grown.batches >= grown.due and not _off:
                        grown.look()
                if time.monotonic() < process.rest:
                    return types.MethodType(self._method, fetcher)
        except Exception as error:
            if not _failed(error):
                raise
        if not _off and _guarded(_before_fetch):
            return types.MethodType(self._watched, fetcher)
        return types.MethodType(self._method, fetcher)

    def _watched(self, fetcher, index):
        """Fetches with the budget watched between the records of the batch, and after it."""
        data = self._method(fetcher, _guarded(_over, fetcher, index) or index)
        _guarded(_watch)
        return data


def install(dataloader):
    """Patches the module torch.utils.data.dataloader and says hello."""
    global _torch, _off
    _torch = _Torch(dataloader)
    if "t" in sys.abiflags:
        # What drops a mapping and what replaces a worker both rest on the interpreter's lock.
        _off = True
        if not _being_born() and not _is_child():
            _here().side.say("off", why="this Python is free-threaded, which the hook does not support")
        return
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(_torch.part("fetch"), name, None)
        method = fetcher and vars(fetcher).get("fetch")
        if isinstance(method, types.FunctionType):
            fetcher.fetch = _Fetch(method)
    iterator = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
    if iterator is not None and isinstance(vars(iterator).get("__init__"), types.FunctionType):
        _patch_ends(iterator, _first, "made")
    # A child of multiprocessing may be anything: it says hello once it owns a loader.
    if _being_born():
        _guarded(_imported)
    elif not _is_child():
        _here()


def _imported():
    _load()
    copies.imported()


def install_stateful(module):
    """Patches the module of torchdata's StatefulDataLoader; torch's has been patched."""
    global stateful
    from _rsswarden import stateful

    iterator = getattr(module, stateful.ITERATOR, None)
    if _torch is not None and iterator is not None and isinstance(vars(iterator).get("__init__"), types.FunctionType):
        _patch_ends(iterator, functools.partial(_first_stateful, module), "made_stateful")


def _being_born():
    """Says whether this is a child of spawn or forkserver that has not been told yet whose it is.

    It imports torch while it unpickles what it is to run, before parent_process
    knows; multiprocessing.spawn marks the process for that time.
    """
    return getattr(multiprocessing.current_process(), "_inheriting", False)


def _is_child():
    """Says whether this is a child of multiprocessing, or a fork server, which imports torch where it is to preload it."""
    if multiprocessing.parent_process() is not None:
        return True
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") == "multiprocessing.forkserver":
            return True
        frame = frame.f_back
    return False


def _look(process):
    now = time.monotonic()
    if now < process.next:
        return
    version = process.side.version
    process.side.look()
    if process.side.version != version:
        process.quiet = now + _FOLLOWS
    process.next = now + (_SOON if now < process.quiet else _PAUSE)


def _before_fetch():
    """Does what the ctl file asks for; returns whether there is a budget to watch."""
    process = _here()
    if not process.fetches:
        process.begin()
        process.fetches = True
        if not process.worker:
            process.side.say("iter", n=0, kind="any", num_workers=0, persistent=False, workers=[],
                             can_recycle=False, why="the trainer loads for itself")
    side = process.side
    _look(process)
    if process.met != side.version:
        process.met = side.version
        process.trimmer.requests()
        process.collector.requests()
    if not side.budget:
        process.rest = process.next
        return False
    process.rest = 0.0
    process.trimmer.budget()
    return True


def _over(fetcher, index):
    """Returns the indices of the batch with the budget watched between, or None where they are not read one by one."""
    if type(index) is not list or not fetcher.auto_collation or getattr(fetcher.dataset, "__getitems__", None):
        return None
    return trim.Watched.over(index, functools.partial(_guarded, _watch))


def _watch():
    if not _off:
        _here().trimmer.budget()


def _patch_ends(iterator_class, first, made):
    """Wraps the beginning and the end of the iterator that has workers; made names what is done with a new one."""
    original_init = iterator_class.__init__
    original_shutdown = vars(iterator_class).get("_shutdown_workers")

    def __init__(self, loader, *arguments, **keywords):
        start = None
        if not _off:
            start = _guarded(_before_init, first, iterator_class, original_init, loader)
        original_init(self, loader, *arguments, **keywords)
        if not _off:
            _guarded(_made, made, self, loader, start)

    # Called by __del__, too, while the interpreter clears what this module has.
    def _shutdown_workers(self, _guarded=_guarded, _ending=_ending):
        ending = _guarded(_ending, self)
        try:
            return original_shutdown(self)
        finally:
            if ending is not None:
                _guarded(ending.finish)

    iterator_class.__init__ = __init__
    if original_shutdown is not None:
        iterator_class._shutdown_workers = _shutdown_workers


def _before_init(first, iterator_class, original_init, loader):
    """Does what is due before an iterator is made; returns when and how its workers are started."""
    _load()
    _guarded(first, iterator_class, original_init)
    _guarded(sharing.warn, loader, _torch, _here)
    return copies.Start.of(loader, _torch)


def _made(name, iterator, loader, start):
    getattr(iterators, name)(iterator, loader, start)


def _first(iterator_class, _):
    """Has the iterators' methods wrapped before the first is made, where torch's text says that it can be recycled."""
    global _is_first
    first, _is_first = _is_first, False
    if first and _torch.read():
        iterators.wrap(iterator_class)


def _first_stateful(module, iterator_class, constructor):
    """Does the same for torchdata's iterators."""
    global _torchdata
    if _torchdata is None:
        _torchdata = stateful.Parts(module, _torch, constructor)
        if _torchdata.why is None:
            iterators.wrap_stateful(iterator_class)


def _recycler(iterator):
    """Returns the iterator's recycler, or None: it was made before us, or in another process."""
    recycler = iterator.__dict__.get("_rsswarden")
    if recycler is not None and recycler.side.pid == os.getpid():
        return recycler


def _ending(iterator):
    recycler = _recycler(iterator)
    if recycler is None or getattr(iterator, "_shutdown", False) or _torch.utils.python_exit_status is not False:
        return None
    if "_rsswarden_revive" in iterator.__dict__:
        _guarded(revive.end, iterator, recycler.context)
    return epoch.Ending(recycler, iterator)
