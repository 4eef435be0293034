"""Starting a replacement for a loader's worker, and ending the one it replaces.

Nothing here needs anything of ours inside the worker that is ended: what is
put on its index queue is made of the standard library alone, and acts while it
is unpickled there.
"""
import atexit
import contextlib
import functools
import os
import queue
import sys
import traceback
import weakref
from multiprocessing import context as spawning
from multiprocessing import reduction

from _rsswarden import descriptors, guard

_VERBS = "/dev/infiniband/"
REPORT = 5.0  # seconds after which a fork server that has reaped a worker is no more expected to report its status


class Refused(Exception):
    """Why a fork helper starts no worker, for people."""


class Quit:
    """Ends the worker that takes it off its index queue, with status 0 and its results flushed."""

    def __reduce__(self):
        return sys.exit, (0,)


class Probe:
    """Has the worker that takes it off its index queue make a file, and finds the queue empty."""

    class _Empty:
        class _Queue:
            def __reduce__(self):
                return queue.SimpleQueue, ()

        def __reduce__(self):
            return queue.SimpleQueue.get_nowait, (self._Queue(),)

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return tuple, ((_Made(self._path), self._Empty()),)


class _Made:
    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mknod, (self._path, 0o600)


def put(index_queue, verb):
    """Puts a Quit or Probe on an index queue.

    What fails in pickling it fails here, and not in the queue's own thread, which
    would say so on the program's stderr.
    """
    reduction.ForkingPickler.dumps(verb)
    index_queue.put(verb)


def needed(filled):
    """Returns the attributes of the iterator that fill parameters of its workers' loop, as fingerprint.arguments found them."""
    return tuple(attribute for how, attribute in filled.values() if how in ("is", "in"))


def value(iterator, how, attribute):
    """Returns what the iterator's attribute fills a parameter with. A list that holds it is emptied by the worker."""
    held = getattr(iterator, attribute)
    return [held] if how == "in" else held


def forbids(context):
    """Says why this process must not be forked for a new worker, or None.

    Memory that is registered with an InfiniBand adapter need not survive a fork:
    the parent's writes to it go to a copy that the adapter does not see
    (ibv_fork_init(3)). Newer kernels copy such memory at the fork. spawn and
    forkserver do not fork this process.
    """
    if context.get_start_method(allow_none=True) != "fork":
        return None
    path = registered()
    return "fork refused: the trainer has %s open" % path if path and not _copies() else None


def _copies():
    """Says whether libibverbs, where it is loaded, says that the kernel copies registered memory: IBV_FORK_UNNEEDED of ibv_is_fork_initialized(3)."""
    import ctypes

    try:
        return ctypes.CDLL("libibverbs.so.1", os.RTLD_NOLOAD).ibv_is_fork_initialized() == 2
    except (OSError, AttributeError):  # not loaded, or older than that function
        return False


def registered():
    """Returns the device of an InfiniBand adapter that this process has open, or None."""
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue  # the descriptor that lists them, for one
        if path.startswith(_VERBS):
            return path
    return None


class Init:
    """The program's worker_init_fn in a replacement, which it ends where that fails.

    torch would have the worker deliver the failure as its first batch, which ends
    the program's loop; a replacement that ends is done without.
    """

    def __init__(self, init):
        self._init = init

    def __call__(self, worker_id):
        try:
            self._init(worker_id)
        except Exception:
            try:
                traceback.print_exc()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(1)


class _Dry(reduction.ForkingPickler):
    """Pickles as for a child, and keeps nothing. Skips tensors: pickling would share each of them again."""

    class _Nowhere:
        DupFd = int

        @staticmethod
        def write(data):
            pass

        @staticmethod
        def duplicate_for_child(fd):
            return fd

    def __init__(self):
        super().__init__(self._Nowhere)
        self._tensor = sys.modules["torch"].Tensor

    def reducer_override(self, value):
        return (tuple, ()) if isinstance(value, self._tensor) else NotImplemented

    def try_on(self, value):
        before = spawning.get_spawning_popen()
        spawning.set_spawning_popen(self._Nowhere)
        try:
            self.dump(value)
        finally:
            spawning.set_spawning_popen(before)


def unpicklable(iterator, context, filled):
    """Says why a worker could not be started with what the iterator has now, or None."""
    if context.get_start_method(allow_none=True) == "fork":
        return None
    try:
        _Dry().try_on([getattr(iterator, name) for name in needed(filled)])
    except Exception as error:
        if not guard.ours(error):
            raise
        return refused(error)
    return None


def refused(error):
    """The text for a worker that could not be started."""
    return "fork refused: %s" % (getattr(error, "strerror", None) or "%s: %s" % (type(error).__name__, str(error)[:200]))


def born(found, loop, *arguments):
    """What a forked replacement runs."""
    try:
        descriptors.reopen(found)
    except Exception:
        pass  # as a worker of the first generation would be
    loop(*arguments)


def arguments(filled, own, value):
    """Returns what a replacement's loop is given: own by parameter, and what value returns for the rest."""
    given = [own[name] if how == "own" else value(how, attribute) for name, (how, attribute) in filled.items()]
    return tuple(Init(v) if name == "init_fn" and v is not None else v for name, v in zip(filled, given))


def start(iterator, worker_id, base_seed, context, loop, filled, ready_file):
    """Starts a worker as the iterator's constructor does, and has it make a file once it is up.

    Returns its process, its index queue and the file, which ready_file names after its PID;
    without ready_file there is none.
    """
    index_queue = context.Queue()
    index_queue.cancel_join_thread()
    own = {"index_queue": index_queue, "worker_id": worker_id, "base_seed": base_seed}
    given = arguments(filled, own, functools.partial(value, iterator))
    if context.get_start_method(allow_none=True) == "fork":
        process = context.Process(target=born, args=(descriptors.positions(), loop) + given)
    else:
        process = context.Process(target=loop, args=given)
    process.daemon = True
    try:
        with _without(iterator):
            process.start()
        ready = None
        if ready_file is not None:
            ready = ready_file(process.pid)
            put(index_queue, Probe(ready))
    except BaseException:
        if process.pid is not None:
            process.kill()
        index_queue.close()
        raise
    started(iterator, process, index_queue)
    return process, index_queue, ready


def _without(iterator):
    recycler = vars(iterator).get("_rsswarden")
    return contextlib.nullcontext() if recycler is None or recycler.pipes is None else descriptors.without(recycler.pipes)


def started(iterator, process, index_queue):
    """Does for a new replacement what torch does for its workers at the interpreter's end, and has what it is given kept."""
    given = vars(iterator).get("_rsswarden_given")
    if given is not None:
        given.record(index_queue)
    cleanup = getattr(type(iterator), "_clean_up_worker", None)
    if cleanup is not None and iterator._persistent_workers and iterator._pin_memory:
        atexit.register(_at_exit, cleanup, weakref.ref(process))


def _at_exit(cleanup, reference):
    """Does for a replacement that lives what torch does for its workers; the others' descriptors are not kept for it."""
    process = reference()
    if process is not None:
        cleanup(process)


def ended(process):
    """Says whether a worker has ended, also where the program took its exit status, so that multiprocessing cannot know."""
    if not process.is_alive():
        return True
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def unreported(process):
    """Says whether the status of a worker that has ended is to come: a fork server reaps it, and reports that next."""
    return getattr(getattr(process, "_popen", None), "method", None) == "forkserver" and process.exitcode is None


def end(process, patience):
    """Waits for a worker that was told to end, and ends one that does not as torch ends its own, at last by force.

    Returns how many times it was made to.
    """
    pressed = 0
    process.join(patience)
    while pressed < 2 and not ended(process):
        press(process, pressed)
        pressed += 1
        process.join(1)
    if ended(process) and unreported(process):
        process.join(REPORT)
    return pressed


def press(process, pressed):
    """Makes a worker end that was made to so many times before."""
    if pressed:
        process.kill()
    else:
        process.terminate()


def outcome(process, pressed):
    """Describes a worker's end. pressed is how often it was made to end.

    torch's workers end with status 0 where their trainer terminates them. That a
    status is not known, as after a wait of the program's own, is not said to be 0.
    """
    code, why = process.exitcode, []
    if pressed:
        why.append("did not end when told, was " + ("terminated" if pressed == 1 else "killed"))
    if code is None:
        why.append("exit status unknown: " + _unknown(process))
    return {"exit": -1 if code is None else code, "why": ", ".join(why)}


def _unknown(process):
    """Says why a worker's exit status is not known."""
    if not ended(process):
        return "it has not ended"
    return "its fork server does not report it" if unreported(process) else "the program itself reaped it"
