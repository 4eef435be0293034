"""Starting a replacement for a loader's worker, and ending the one it replaces.

Nothing here needs anything of ours inside the worker that is ended: what is
put on its index queue is made of the standard library alone, and acts while it
is unpickled there.
"""
import atexit
import inspect
import os
import queue
import sys

from _rsswarden import offsets

# Parameters of torch's _worker_loop and the attribute of the iterator that has
# the argument. Those of _OWN are the replacement's own.
_FROM = {
    "dataset_kind": "_dataset_kind",
    "dataset": "_dataset",
    "data_queue": "_worker_result_queue",
    "done_event": "_workers_done_event",
    "auto_collation": "_auto_collation",
    "collate_fn": "_collate_fn",
    "drop_last": "_drop_last",
    "init_fn": "_worker_init_fn",
    "num_workers": "_num_workers",
    "persistent_workers": "_persistent_workers",
    "shared_seed": "_shared_seed",
}
_OWN = ("index_queue", "worker_id", "base_seed")
_VERBS = "/dev/infiniband/"


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


def parameters(loop):
    """Returns the names of torch's _worker_loop's parameters, and why they are not the ones known, or None."""
    names = list(inspect.signature(loop).parameters)
    unknown = [name for name in names if name not in _FROM and name not in _OWN]
    missing = [name for name in _OWN if name not in names]
    if unknown or missing:
        return names, "unknown _worker_loop(%s)" % ", ".join(names)
    return names, None


def needed(names):
    """Returns the attributes of the iterator that the parameters are filled from."""
    return tuple(_FROM[name] for name in names if name in _FROM)


def forbids(context):
    """Says why this process must not be forked for a new worker, or None.

    Memory that is registered with an InfiniBand adapter need not survive a fork:
    the parent's writes to it go to a copy that the adapter does not see
    (ibv_fork_init(3)). spawn and forkserver do not fork this process.
    """
    if context.get_start_method(allow_none=True) != "fork":
        return None
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue  # the descriptor that lists them, for one
        if path.startswith(_VERBS):
            return "fork refused: the trainer has %s open" % path
    return None


def _born(found, loop, *arguments):
    """What a forked replacement runs."""
    try:
        offsets.reopen(found)
    except Exception:
        pass  # as a worker of the first generation would be
    loop(*arguments)


def start(iterator, worker_id, base_seed, context, loop, names):
    """Starts a worker as the iterator's constructor does; returns its process and its index queue."""
    index_queue = context.Queue()
    index_queue.cancel_join_thread()
    own = {"index_queue": index_queue, "worker_id": worker_id, "base_seed": base_seed}
    arguments = tuple(own[name] if name in own else getattr(iterator, _FROM[name]) for name in names)
    if context.get_start_method(allow_none=True) == "fork":
        process = context.Process(target=_born, args=(offsets.positions(), loop) + arguments)
    else:
        process = context.Process(target=loop, args=arguments)
    process.daemon = True
    try:
        process.start()
    except BaseException:
        index_queue.close()
        raise
    cleanup = getattr(type(iterator), "_clean_up_worker", None)
    if cleanup is not None and iterator._persistent_workers and iterator._pin_memory:
        atexit.register(cleanup, process)
    return process, index_queue
