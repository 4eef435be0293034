"""Workers of pools: multiprocessing.Pool, multiprocess.Pool, ProcessPoolExecutor, loky.

The loop of a pool's worker compares the tasks it has done with a limit, once a
task. Where a pool reads its limit it is given an int that looks at the ctl file of
the pool's owner when it is compared: there the worker trims itself, and when it is
asked to go its limit is reached, so that it ends between two tasks and its pool
starts another. Nothing of a loop is copied, and no frame of ours is in it.
"""
import collections
import contextlib
import functools
import itertools
import os
import select
import sys
import threading
import time
import types
import weakref

_PAUSE = 0.05  # seconds between two looks at the ctl file and at what is mapped
_TIMES = 1000  # … and at least so many times what a look takes, which is 0.3 ms where other work has the caches
_LONGEST = 0.25  # … but no longer
_RATE = 8 << 30  # … nor longer than what is mapped takes to the half of its budget, in bytes a second
_NEAR = 0.005  # the same where more than half of the budget is mapped
_YOUNG = 0.1  # seconds in which a worker does not report its growth: of many short tasks the last report is enough
_FIRST = 1 << 20  # numbers of pools begin here, above those of torch's iterators
_FRAMES = 32  # how far up the stack it is looked for who makes a pool

_MAKERS = "datasets.", "torch._inductor."  # packages that know their workers, and how each ends
_FORKED = "its ProcessPoolExecutor would fork another beside its own threads; use mp_context, or --loader all"
_SHARED = "its initializer has a %s, which may have nothing for one worker more; --loader all"  # gone unless the user asks, as _FORKED
_NUMBERED = "its initializer goes by the number of its worker; --loader all"  # the same
_HANDOUTS = ("Queue", "JoinableQueue", "SimpleQueue", "Connection", "Barrier", "Semaphore", "BoundedSemaphore", "Condition",
             "Synchronized", "AutoProxy", "BaseProxy")  # names of classes: what workers take in turn, or count with
_LISTED = 64  # of a list so many are looked at: a longer one is data, and to look at it copies pages that workers share
_BY_NUMBER = "_identity", "current_process"  # what an initializer names that goes by the number of its worker
_RESTS = "threading", "multiprocessing", "multiprocess", "concurrent", "queue", "selectors", "socket", "subprocess", "asyncio"
_REST = 2.0  # seconds that a fork waits until the program's threads are in one of those
_AGAIN = 1.0  # … that it waits once more at most
_UNLOCKED = 60.0  # … that it then waits at most until none has a lock
_FETCH = 30.0  # seconds that a worker which goes waits for its last results to be fetched

Pool = collections.namedtuple("Pool", "owner number kind start why")  # why: its workers have to stay; None: they need not

_numbers = itertools.count(_FIRST)
_begun = {}  # by the id of a pool's list of workers: a _Begun
_off = False
_owner = None  # the PID of the process that said hello, and whether the run directory is meant for it
_forks_now = None  # the process and thread that fork a worker of a Pool, and since when they wait
_worker = None  # what this process is as a worker; what it forks is none


def install(module):
    """Patches a module that has a pool, right after it was executed."""
    if "t" in sys.abiflags:
        return  # trims rest on the interpreter's lock
    if module.__name__ == "concurrent.futures.process":
        # Before Python 3.11 the end of a worker breaks the pool.
        if _takes(module._process_worker, "max_tasks"):
            executor = module.ProcessPoolExecutor
            executor._max_tasks_per_child = _Number("_max_tasks_per_child", _executor, module)
            executor.__del__ = functools.partialmethod(_outlives, module)
            if not _refills(module):
                executor._adjust_process_count = _Looked(executor._adjust_process_count, _spawn)
    elif module.__name__.endswith("process_executor"):
        if all(hasattr(module, name) for name in ("_USE_PSUTIL", "_MAX_MEMORY_LEAK_SIZE", "_ExecutorManagerThread", "warnings")):
            executor = module.ProcessPoolExecutor
            executor.__del__ = functools.partialmethod(_outlives, module)
            executor._adjust_process_count = _Looked(executor._adjust_process_count, lambda _: _hello() and None)
            thread = module._ExecutorManagerThread
            thread.process_result_item = _Looked(thread.process_result_item, _shut)
            module._get_memory_usage = _Measure(module._get_memory_usage if module._USE_PSUTIL else _collect)
            module._USE_PSUTIL, module.warnings = True, _Warnings(module.warnings)
    elif _takes(module.worker, "maxtasks"):
        module.Pool._maxtasksperchild = _Number("_maxtasksperchild", _pool, module)
        if hasattr(module.Pool, "Process"):
            module.Pool.Process = staticmethod(functools.partial(_process, module.Pool.Process))


def _takes(function, parameter):
    code = function.__code__
    return parameter in code.co_varnames[:code.co_argcount]


class Limit(int):
    """How many tasks a worker does: the pool's own limit, or one that is never reached, until the worker is asked to go."""

    def __new__(cls, number, *pool):
        limit = int.__new__(cls, number)
        limit.pool = Pool(*pool)
        return limit

    def __gt__(self, done):  # done < self: Python asks the derived class first
        return int.__gt__(self, done) and not _leaves(self.pool)

    def __le__(self, done):  # done >= self
        return int.__le__(self, done) or _leaves(self.pool)

    def __reduce__(self):
        # A spawned child may be without the hook: there it is an int.
        return eval, ("(lambda hook: hook.Limit(*%r) if hook else %d)(__import__('sys').modules.get('_rsswarden.pools'))" % (
            (int(self),) + tuple(self.pool), int(self)),)


class _Number:
    """The attribute in which a pool keeps how many tasks a worker does. What reads it gets a Limit."""

    def __init__(self, name, describe, module):
        self._name, self._describe, self._module = name, describe, module

    def __get__(self, pool, owner=None):
        if pool is None:
            return self
        if self._name not in pool.__dict__:
            raise AttributeError("%r object has no attribute %r" % (type(pool).__name__, self._name))
        number = pool.__dict__[self._name]
        limit = None if _off else _guarded(self._limit, pool, number)
        return number if limit is None else limit

    def __set__(self, pool, number):
        pool.__dict__[self._name] = number
        if not _off:
            pool.__dict__["_rsswarden_by"] = _guarded(_maker)  # set as the pool is made, read when it starts workers

    def _limit(self, pool, number):
        """Returns a Limit in place of number, or None where the pool is to be left alone."""
        if number is not None and (type(number) is not int or number < 1):
            return None
        known = pool.__dict__.get("_rsswarden")
        if known is None or known[0] != os.getpid():
            says = self._describe(pool, self._module)
            if says is not None:
                says = _hello() and (os.getpid(), next(_numbers)) + says
            known = pool.__dict__["_rsswarden"] = os.getpid(), says
        return Limit(sys.maxsize if number is None else number, *known[1]) if known[1] else None


def _pool(pool, module):
    """Returns kind, start method and why workers have to stay, of a multiprocessing.Pool."""
    if isinstance(pool, module.ThreadPool):
        return None
    why = None
    if pool.__dict__.get("_rsswarden_by") == "datasets.":
        why = "Hugging Face datasets gives up when a worker of its pool ends; use a smaller writer_batch_size"
    return module.__name__.split(".")[0] + ".Pool", pool._ctx.get_start_method(), why or _patched() or _handout(pool)


def _process(make, *arguments, **keywords):
    """Makes a worker of a Pool, as Pool.Process does."""
    process = make(*arguments, **keywords)
    if not _off:
        _guarded(_succeeds, process, sys._getframe(1))
    return process


class _Begun:
    """What is kept of a pool."""

    def __init__(self, pipes):
        self.pipes = pipes  # that were open when its first workers were made, None where it does not fork
        self.made = []  # the numbers of its workers
        self.left = []  # … of those that were asked to go and did, and have no successor yet

    def look(self, workers):
        """Finds who has left since the last look."""
        stay = {worker._identity for worker in workers}
        self.left += sorted(number for number in self.made if number not in stay and _has_left(number))
        self.made = [number for number in self.made if number in stay]


def _has_left(number):
    """Says whether the worker of that number went because it was asked to: one that the program ends, or that dies, is the pool's."""
    from _rsswarden import channel

    try:
        os.unlink(channel.left_file(os.getpid(), number))
    except OSError:
        return False
    return True


def _succeeds(process, frame):
    """Has a worker that takes the place of one which has left begin under that one's number, and be forked where it can."""
    known = frame.f_locals
    if frame.f_code.co_name != "_repopulate_pool_static" or type(known.get("maxtasksperchild")) is not Limit:
        return
    workers, forks = known["pool"], known["ctx"].get_start_method() == "fork"
    if frame.f_back.f_code.co_name != "_maintain_pool":
        if not workers:
            from _rsswarden import descriptors

            _begun[id(workers)] = _Begun(descriptors.pipes() if forks else None)
    begun = _begun.get(id(workers))
    if begun is None:
        return
    begun.look(workers)
    if begun.left:
        number, pipes = begun.left.pop(0), None
        if known["maxtasksperchild"] == sys.maxsize:  # else the program expects other numbers, and new ones to be as it is then
            process._identity, pipes = number, begun.pipes
            process._name = type(process).__name__ + "-" + ":".join(map(str, process._identity))
        if forks:
            process._Popen = functools.partial(_at_rest, workers, pipes, process._Popen)
    begun.made.append(process._identity)


def _at_rest(workers, pipes, popen, process):
    """Forks where no other thread is in the midst of something: a lock that it held would be held in the worker for ever.

    That is while all wait in Python's own modules, or after a while where none has a lock. A pool without
    a worker does not wait for that, and one that is closed does not wait.
    """
    global _forks_now
    del process._Popen  # which holds the list that the process is in
    began = time.monotonic()
    _wait_calm(began, lambda: _UNLOCKED if any(worker.exitcode is None for worker in workers) else _REST)
    _guarded(_watch_forks)
    without = pipes is not None and _guarded(_without, pipes)
    _forks_now = os.getpid(), threading.get_ident(), began
    try:
        with without or contextlib.nullcontext():
            return popen(process)
    finally:
        _forks_now = None


def _without(pipes):
    from _rsswarden import descriptors

    return descriptors.without(pipes)


def _wait_calm(began, most):
    pause, thread = 0.001, threading.current_thread()
    while not _off and getattr(thread, "_state", "RUN") == "RUN":
        waited = time.monotonic() - began
        if waited > most() or _guarded(_calm, waited > _REST):
            return
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


@functools.lru_cache(None)
def _watch_forks():
    """Looks once more right before the fork: from there on no other thread runs."""
    os.register_at_fork(before=_before_fork)


def _before_fork():
    if _forks_now is not None and _forks_now[:2] == (os.getpid(), threading.get_ident()):  # a worker that forks has its copy
        began = _forks_now[2]
        until = time.monotonic() - began + _AGAIN
        _wait_calm(began, lambda: until)


def _calm(locks):
    """Says whether no other thread is in code of the program's; with locks, whether none of that has a lock that is held."""
    here = threading.get_ident()
    frames = [frame for thread, frame in sys._current_frames().items() if thread != here]
    if not locks:
        return all(map(_rests, frames))
    for frame in frames:
        while frame is not None:
            if not _rests(frame):
                own = getattr(frame.f_locals.get("self"), "__dict__", {})
                if any(map(_held, list(itertools.chain(frame.f_globals.values(), frame.f_locals.values(), own.values())))):
                    return False
            frame = frame.f_back
    return True


def _rests(frame):
    return (frame.f_globals.get("__name__") or "").split(".")[0] in _RESTS


def _held(value):
    kind = type(value)
    if kind is types.MethodType or kind.__module__ not in ("_thread", "threading"):
        return False
    value = getattr(value, "_lock", value)  # of a Condition
    return type(value).__name__ == "lock" and value.locked() or type(value).__name__ == "RLock" and "owner=0" not in repr(value)


def _executor(executor, module):
    """Returns the same of a ProcessPoolExecutor."""
    start, why = executor._mp_context.get_start_method(), _patched()
    if executor.__dict__.get("_rsswarden_by") == "torch._inductor.":
        return "torch.compile", start, "torch.compile's workers end by themselves a minute later; TORCHINDUCTOR_COMPILE_THREADS=1 starts none"
    if executor._max_workers == 1 and not _refills(module):
        why = "this Python's ProcessPoolExecutor may not replace its only worker"
    elif why is None and start == "fork":
        why = _FORKED
    elif why is None and next(kind for kind in type(executor).__mro__ if "__del__" in vars(kind)) is not module.ProcessPoolExecutor:
        why = "its class has a __del__ of its own"  # see _outlives
    return "ProcessPoolExecutor", start, why or _handout(executor)


def _patched():
    """Returns why workers have to stay where another select than Python's is waited with, or None.

    eventlet's says of one file alone that it is ready: that a worker has ended, and not that its
    last result came before, which breaks a ProcessPoolExecutor.
    """
    module = getattr(select.select, "__module__", None)
    return None if module == "select" else "%s has replaced Python's select, with which its pool waits for workers" % str(module).split(".")[0]


def _handout(pool):
    """Returns why a pool's initializer may fail or wait in one worker more than the pool began with, or None."""
    initializer = getattr(pool, "_initializer", None)
    known = list(getattr(pool, "_initargs", None) or ())
    while issubclass(type(initializer), functools.partial):
        known += list(initializer.args) + list(initializer.keywords.values())
        initializer = initializer.func
    owner = function = initializer
    if type(initializer) in (types.MethodType, types.BuiltinMethodType):
        owner, function = initializer.__self__, getattr(initializer, "__func__", None)
    with contextlib.suppress(AttributeError):
        known += object.__getattribute__(owner, "__dict__").values()  # not by a __getattr__ of the program's
    if type(function) is types.FunctionType:
        code = function.__code__
        if set(_BY_NUMBER).intersection(code.co_names):
            return _NUMBERED
        known += [function.__globals__.get(name) for name in code.co_names]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # it is empty
                known.append(cell.cell_contents)
    for value in known:
        for one in value[:_LISTED] if type(value) in (list, tuple) else [value]:
            for base in type(one).__mro__:
                if base.__name__ in _HANDOUTS and base.__module__.startswith(("multiprocessing.", "multiprocess.")):
                    return _SHARED % type(one).__name__
    return None


def _refills(module):
    """Says whether executors replace each worker that has reached its limit by themselves (CPython issue 115634)."""
    return hasattr(module._ExecutorManagerThread, "_replace_dead_worker")


def _maker():
    """Returns which of _MAKERS makes a pool now, or None."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        frame = frame.f_back
        if frame is None:
            break
        for package in _MAKERS:
            if (frame.f_globals.get("__name__") or "").startswith(package):
                return package
    return None


def _outlives(executor, module, finalizing=sys.is_finalizing):
    """Is __del__ of executors, which replace workers: where tasks are left a stand-in does that."""
    if not finalizing():
        _guarded(_leave_stand_in, executor, module)


def _leave_stand_in(executor, module):
    tasks = vars(executor).get("_pending_work_items")
    for known in module._threads_wakeups.keyrefs() if tasks else ():
        manager = known()
        if manager is not None and manager.is_alive() and manager.pending_work_items is tasks:
            reference = manager.executor_reference
            one, callback = reference(), getattr(reference, "__callback__", None)
            if one is executor or one is None:  # the latter in a cycle; else a copy lives
                _stand_in(executor, manager)
                if callback is not None:
                    callback(None)  # as where it is gone, that thread has to look


def _stand_in(executor, manager):
    """Returns what the thread of an executor that is shut down, or gone, starts workers with from now on."""
    stand_in = object.__new__(sys.modules[type(manager).__module__].ProcessPoolExecutor)
    vars(stand_in).update(
        vars(executor), _executor_manager_thread=None, _rsswarden_shut=True,
        _processes=manager.processes, _call_queue=manager.call_queue, _result_queue=manager.result_queue)
    if hasattr(manager, "executor_flags"):  # loky's
        stand_in._processes_management_lock = manager.processes_management_lock
        manager.executor_flags.shutdown = True
    else:
        stand_in._shutdown_thread = True
    shut = weakref.ref(executor)

    def reference():
        stand_in._cancel_pending_futures = getattr(shut() or stand_in, "_cancel_pending_futures", False)  # it may be shut down again
        return stand_in

    manager.executor_reference = reference
    return stand_in


class _Looked:
    """A method, with a look of ours each time it is looked up on an object, which may give another to be called."""

    def __init__(self, method, look):
        self._method, self._look = method, look

    def __get__(self, executor, owner=None):
        if executor is None:
            return self._method
        instead = None if _off else _guarded(self._look, executor)
        return types.MethodType(self._method, executor) if instead is None else instead


def _spawn(executor):
    """Returns what starts a worker, where one has just reached its limit: the method itself takes tasks done for idle workers then."""
    # Which thread this is gevent and eventlet do not tell; frame 3 is what looked the method up.
    if sys._getframe(3).f_code.co_name == "run" and executor._processes is None:
        return functools.partial(_guarded, _refill, executor, sys._getframe(3).f_locals["self"])
    if (sys._getframe(3).f_code.co_name == "run" and executor._processes is not None
            and len(executor._processes) < executor._max_workers and (executor._safe_to_dynamically_spawn_children or _forks())):
        return executor._spawn_process
    return None


def _refill(executor, manager):
    """Starts a worker of an executor that was shut down with wait=False: what that takes its thread has."""
    if manager.pending_work_items and (executor._safe_to_dynamically_spawn_children or _forks()):
        _stand_in(executor, manager)._spawn_process()


def _shut(manager):
    """Has the thread of a loky executor that was shut down with wait=False start workers as before."""
    executor = manager.executor_reference()
    if executor is not None and manager.executor_flags.shutdown and manager.pending_work_items and "_rsswarden_shut" not in vars(executor):
        _stand_in(executor, manager)


def _forks():
    """Says whether the user asked to recycle workers of an executor that forks."""
    from _rsswarden import channel

    return bool(_hello() and channel.setting("forks"))


class _Measure:
    """loky's measure of a worker's memory after a task: beyond all bounds once the worker is asked to go."""

    def __init__(self, measure):
        self._measure, self._asked = measure, False

    def __call__(self, pid, force_gc=False):
        if not self._asked and not force_gc:
            self._asked = _leaves(None)
        return float("inf") if self._asked else self._measure(pid, force_gc)


def _collect(pid, force_gc):
    """Is what loky does at such times without psutil."""
    import gc

    gc.collect()
    return 0


class _Warnings:
    """The module warnings, as loky has it: that a worker ended is no news where it was asked to."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)

    def warn(self, message, category=None, stacklevel=1, **keywords):
        if not (str(message).startswith(("A worker was restarted", "A worker stopped")) and _guarded(_has_asked)):
            self._module.warn(message, category, stacklevel + 1, **keywords)


def _has_asked():
    """Says whether a worker of this process was asked to go, and the watcher does not know yet that it has gone."""
    from _rsswarden import channel

    side = channel.Side()
    side.look()
    return bool(side.recycles)


def _hello():
    """Says that the owner of a pool is there; returns whether the run directory is meant for it."""
    global _owner
    if _owner is None or _owner[0] != os.getpid():
        from _rsswarden import channel, growth  # what workers that are forked will need

        meant = channel.meant()
        if meant:
            channel.Side().hello("", True, None, again=False)
            _keep_main()
        _owner = os.getpid(), meant
    return _owner[1]


def _keep_main():
    """Has the main module name its file while Python waits for tasks at its end: a worker that is spawned then imports it.

    Python takes that name away when the module has run.
    """
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is not None and hasattr(threading, "_register_atexit"):
        with contextlib.suppress(RuntimeError):  # it ends
            threading._register_atexit(_name_main, main.__file__)


def _name_main(file):
    # What held the module's names until then would have the program's objects outlive what they need at their end.
    with contextlib.suppress(Exception):  # the program may have put something else there
        vars(sys.modules["__main__"]).setdefault("__file__", file)


class _Worker:
    """What the hook keeps of a worker of a pool."""

    def __init__(self, pool):
        from _rsswarden import channel, collect, growth

        if pool.why and pool.why.endswith("--loader all") and channel.setting("forks"):
            pool = pool._replace(why=None)
        self.pid, self.leaves = os.getpid(), False
        self._pool, self._side = pool, channel.Side(pool.owner)
        self._growth = growth.Growth(self._side)
        self._growth.batches = -1  # none before the first look
        self.until = 0.0  # when the ctl file and what is mapped are looked at again
        self.left = self._growth.due - self._growth.batches  # tasks until the growth is looked at
        self._met = 0  # of the ctl file whose requests were met
        self._taken = set()  # requests to go
        self._trimmer, self._collector = None, collect.Collector(self._side, True)
        self._old = time.monotonic() + _YOUNG
        self.say("pool", kind=pool.kind, start=pool.start, born=channel.start_time(self.pid), after=collect.resident()[0],
                 can_recycle=pool.why is None, why=pool.why or "")

    def say(self, what, **fields):
        self._side.say(what, n=self._pool.number, worker=self.pid, **fields)

    def boundary(self):
        """Does between two tasks what the ctl file asks for; returns whether the worker is to go."""
        grown, now = self._growth, time.monotonic()
        self.left -= 1
        if self.left <= 0:
            grown.batches = grown.due
            grown.look(send=now >= self._old)
            self.left = grown.due - grown.batches
        if now >= self.until:
            self._look(now)
            if now >= self._old:
                grown.send()
        return self.leaves

    def _look(self, now):
        """Looks at the ctl file and at what is mapped, and does what there is to do."""
        began = time.thread_time()
        self._side.look()
        asked = self._met != self._side.version
        if asked:
            self._met = self._side.version
            self._meet()
        room = self._room()
        pause = _PAUSE if asked else _TIMES * (time.thread_time() - began)
        self.until = now + (max(_PAUSE, min(pause, _LONGEST, room / _RATE)) if room > 0 else _NEAR)

    def _meet(self):
        """Meets the requests of the ctl file."""
        from _rsswarden import collect

        if self._side.trims:
            self._trims()
        self._collector.requests()
        for number, worker, mode in self._side.recycles:
            if worker != self.pid or number in self._taken:
                continue
            self._taken.add(number)
            why = self._pool.why or _bound() or self._tells_owner()
            if why is None:
                self.say("accepted", id=number, mode=mode, before=collect.resident()[0])
                self.leaves = True
                _fetched_first()
            else:
                self.say("refused", id=number, why=why)

    def _room(self):
        """Trims where more is mapped than the budget allows; returns how far what is mapped is from half of that, in bytes."""
        from _rsswarden import collect

        half = self._side.budget // 2
        if half == 0 or self.leaves:
            return float("inf")
        room = half - collect.resident()[1]
        return room if room > 0 else half - self._trims().budget()

    def _trims(self):
        """Meets requests to trim, and returns what trims. Most workers of a pool never need it, and its import takes 6 to 9 ms."""
        if self._trimmer is None:
            from _rsswarden import trim

            self._trimmer = trim.Trimmer(self._side)
        self._trimmer.requests()
        return self._trimmer

    def _tells_owner(self):
        """Lets the owner of a Pool know that it is to have a successor of this worker's number; returns why that cannot be, or None."""
        of = sys.modules.get(self._pool.kind.split(".")[0] + ".process")
        if of is None or not self._pool.kind.endswith(".Pool"):
            return None
        from _rsswarden import channel

        try:
            os.close(os.open(channel.left_file(self._pool.owner, of.current_process()._identity), os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            return "its pool cannot be told: %s" % error.strerror
        return None


def _bound():
    """Returns why this worker has to stay although its pool would start another, or None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "it uses CUDA: what it returned may lie in its memory"
    return None


def _fetched_first():
    """Has this process, when it ends, wait for descriptors that it serves, such as those of tensors in its last results."""
    from multiprocessing import util

    util.Finalize(None, _guarded, args=(_serve, os.getppid()), exitpriority=1000)


def _serve(parent):
    sharer = getattr(sys.modules.get("multiprocessing.resource_sharer"), "_resource_sharer", None)
    waiting = getattr(sharer, "_cache", None)
    if waiting is None:
        return
    until = time.monotonic() + _FETCH
    while waiting and time.monotonic() < until and os.getppid() == parent:
        time.sleep(0.002)
    if not waiting:
        _guarded(sharer.stop, 5.0)  # once its thread has sent the last, which is out of _cache before that


def _leaves(pool):
    """Is called between two tasks; says whether the worker is to go. Without pool it is loky's."""
    worker = _worker
    if worker is not None and worker.left > 1 and time.monotonic() < worker.until:
        worker.left -= 1  # nothing is due; a process that this one forked is not told apart before it is
        return worker.leaves
    return not _off and bool(_guarded(_boundary, pool))


def _boundary(pool):
    global _worker
    if _worker is None or _worker.pid != os.getpid():
        _worker = _begin(pool) or _worker
        if _worker is None or _worker.pid != os.getpid():
            return False
    return _worker.boundary()


def _begin(pool):
    """Returns what this process is as a worker of pool, None where it is none."""
    if pool is None:
        import multiprocessing

        parent = multiprocessing.parent_process()
        if parent is None or _worker is not None:
            return None
        pool = Pool(parent.pid, _FIRST - 1, "loky", "loky", None)
    elif pool.start == "forkserver":
        if _worker is not None or os.getpid() == pool.owner:
            return None  # forked by a task, or the owner itself, which may compare too
    elif os.getppid() != pool.owner:
        return None  # the same
    if pool.start != "fork":
        from _rsswarden import channel

        if not channel.meant():
            return None
    return _Worker(pool)


def _guarded(function, *arguments):
    """Returns what function returns; None where it raises, and then pools are left alone from there on."""
    global _off
    try:
        return function(*arguments)
    except Exception as error:
        from _rsswarden import guard

        if not guard.ours(error):
            raise
        first, _off = not _off, True
        if first:
            with contextlib.suppress(Exception):
                _tell_off(guard.describe(error))
        return None


def _tell_off(why):
    if _worker is not None and _worker.pid == os.getpid():
        _worker.say("off", why=why)
        return
    from _rsswarden import channel

    if channel.meant():
        channel.Side().hello("", True, None, again=False)
        channel.Side().say("off", why=why)
