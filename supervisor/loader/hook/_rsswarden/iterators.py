"""The iterator that has workers: its methods, and the report when one is made.

It is loaded with a process's first loader, see patch._load. What holds there of
wrappers and guards holds here.
"""
import os
import time

from _rsswarden import channel, descriptors, epoch, iterable, patch, recycle, revive


def wrap(iterator_class):
    """Wraps the methods of the iterator that has workers which recycling needs."""
    original_try = iterator_class._try_get_data
    original_reset = iterator_class._reset

    def _try_get_data(self, *arguments, **keywords):
        got = original_try(self, *arguments, **keywords)
        if not got[0]:
            dead = patch._guarded(_dead, self)
            if dead:
                raise RuntimeError("DataLoader worker (pid(s) {}) exited unexpectedly".format(dead))
        return got

    def _reset(self, loader, first_iter=False):
        life = None
        if first_iter:
            if not patch._off:
                patch._guarded(revive.begin, self, patch._torch)
        elif self._dataset_kind == 0:
            _take_in(self)
            if not patch._guarded(_settle, self):
                patch._guarded(epoch.close_up, self)
            life = patch._guarded(revive.resume, self)
        else:
            renewal = patch._guarded(_renewal, self, loader)
            if renewal is not None:
                renewal.run(self)
                patch._guarded(_renewed, self, renewal)
                return None
        try:
            got = original_reset(self, loader, first_iter)
        finally:
            if life is not None:
                life.resuming, life.resumed = False, 0
        if not first_iter and patch._guarded(_reopen, self):
            for _ in range(self._prefetch_factor):  # what torch would have given to the worker that drains
                self._try_put_index()
        return got

    iterator_class._next_data = patch._Before(iterator_class._next_data, _poll)
    iterator_class._try_get_data = _try_get_data
    iterator_class._reset = _reset


def _take_in(iterator):
    """Takes in what replaced workers owe: torch waits for the workers in place alone, and an old batch must not meet a new index."""
    if patch._guarded(_replaced, iterator) is not False and hasattr(iterator, "_task_info"):
        while any(len(info) == 1 for info in iterator._task_info.values()):
            iterator._task_info.pop(iterator._get_data()[0], None)
        iterator._task_info.clear()  # batches that had arrived are dropped; the next epoch numbers from 0


def wrap_stateful(iterator_class):
    """Wraps the methods of torchdata's iterator which recycling needs."""
    original_try = iterator_class._try_get_data
    original_reset = iterator_class._reset

    def _try_get_data(self, timeout=None):
        timeout = patch._torch.utils.MP_STATUS_CHECK_INTERVAL if timeout is None else timeout
        recycler, left = patch._guarded(patch._recycler, self), timeout
        while True:
            busy = recycler is not None and recycler.gate is not None
            began = time.monotonic()
            got = original_try(self, min(left, patch.stateful.SLICE) if busy else left)
            spent = time.monotonic() - began
            left -= spent
            answered = got[0] and recycler is not None and patch._guarded(recycler.torch.is_answer, got[1])
            if got[0] and not answered:
                return got
            if answered:
                patch._guarded(recycler.answer, *got[1])
            else:
                dead = patch._guarded(_dead, self)
                if dead:
                    raise RuntimeError("DataLoader worker (pid(s) {}) exited unexpectedly".format(dead))
            if busy:
                patch._guarded(recycler.wait, self, spent)
                # The program's own timeout is for a worker, and not for us.
                if left <= 0 and self._timeout > 0 and patch._guarded(recycler.late, self) is not False:
                    left = timeout
                if patch._off:
                    patch._guarded(recycler.abandon, self, "hook failed")
            if left <= 0:
                return False, None

    def _reset(self, loader, first_iter=False, **keywords):
        recycler = None if first_iter else patch._guarded(patch._recycler, self)
        if recycler is not None:
            patch._guarded(recycler.restart, self)
            if self._dataset_kind == 0:
                _take_in(self)
            else:
                patch._guarded(_replaced, self)
        return original_reset(self, loader, first_iter, **keywords)

    iterator_class._next_data = patch._Before(iterator_class._next_data, _poll)
    iterator_class._try_get_data = _try_get_data
    iterator_class._reset = _reset


def made(iterator, loader, start):
    kind = "map" if iterator._dataset_kind == 0 else "iterable"

    def begin(recycler):
        trial = patch._torch.trial(iterator)
        recycler.why = patch._torch.why or recycle.unknown(iterator, patch._torch.filled)
        if recycler.why is None and kind == "iterable":
            iterable.begin(recycler, loader, iterator)
        elif recycler.why is None and loader.persistent_workers and channel.setting("left"):  # else a fork more for each epoch
            from _rsswarden import fork_helper

            recycler.helper = fork_helper.make(recycler, iterator, loader)
        return trial

    _introduce(iterator, loader, start, recycle.Recycler, patch._torch, kind, begin)


def made_stateful(iterator, loader, start):
    kind = "stateful map" if iterator._dataset_kind == 0 else "stateful iterable"
    _introduce(iterator, loader, start, patch.stateful.Recycler, patch._torchdata, kind,
               lambda recycler: patch.stateful.begin(recycler, iterator))


def _introduce(iterator, loader, start, kind_of_recycler, parts, kind, begin):
    """Gives an iterator its recycler and says that it is there.

    begin says in the recycler why nothing is replaced, if so, and returns what is said of a trial.
    """
    process = patch._here()
    process.begin()
    process.loaders += 1
    context = loader.multiprocessing_context or patch._torch.multiprocessing
    recycler = kind_of_recycler(process.side, process.loaders, context, parts)
    recycler.workers = loader.num_workers
    recycler.pipes = descriptors.pipes() if start is None and recycler.workers else None
    if hasattr(type(iterator), "_shutdown_workers"):
        # Where their end would not be met, nothing is asked of them.
        recycler.pids = tuple(w.pid for w in getattr(iterator, "_workers", ()))
    trial = begin(recycler)
    process.recyclers.add(recycler)
    iterator._rsswarden = recycler
    started = {"start": "fork"} if start is None else start.fields(recycler.pids, patch._torch)
    process.side.say("iter", n=recycler.number, kind=kind, num_workers=recycler.workers,
                     persistent=bool(loader.persistent_workers), workers=list(recycler.pids),
                     revives="_rsswarden_revive" in vars(iterator),
                     can_recycle=recycler.why is None, why=recycler.why or "", trial=trial or "", key=patch._torch.key or "",
                     helper=recycler.helper.pid if recycler.helper is not None else 0, **started)


def _poll(iterator):
    # At most batches this line is all: what follows is slow where they have emptied the caches.
    recycler = iterator.__dict__.get("_rsswarden")
    if recycler is None or time.monotonic() < recycler.rest or recycler.side.pid != os.getpid():
        return
    rest = 0.0
    if not patch._off:
        if "_rsswarden_given" in iterator.__dict__ and revive.tried(iterator, patch._torch):
            recycler.side.say("revives", n=recycler.number)
        process = patch._here()
        patch._look(process)
        rest = process.next
        if process.version != process.side.version:
            process.collector.requests()
            _give_out(process)
    elif recycler.todo or recycler.held:
        recycler.todo, refused = [], recycler.todo + iterable.let_go(recycler)
        for number, pid, _ in refused:
            recycler.refuse(number, pid, "the hook is off")
    if recycler.task is not None or recycler.todo or recycler.leaving or recycler.unhelped:
        if recycler.turn.acquire(False):  # else another thread that takes batches does it
            try:
                recycler.poll(iterator)
            finally:
                recycler.turn.release()
        rest = 0.0
    recycler.rest = rest


def _give_out(process):
    """Gives the requests of the ctl file to the recyclers whose iterators have the workers."""
    process.version = process.side.version
    for recycler in process.recyclers:
        recycler.short(process.side.left)
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
                if recycler.held is None:
                    process.side.say("accepted", n=recycler.number, id=number, worker=pid, mode=mode)
                recycler.todo.append((number, pid, mode))
                break
        else:
            process.side.say("refused", id=number, worker=pid, why="no such worker")


def _dead(iterator):
    """Returns the PIDs of workers that were replaced, owe batches and have ended, for people."""
    recycler = patch._recycler(iterator)
    if recycler is None:
        return ""
    return ", ".join(str(t.old.pid) for t in recycler.leaving if not t.told and not t.old.is_alive())


def _replaced(iterator):
    """Says whether workers that were replaced may owe batches."""
    recycler = patch._recycler(iterator)
    if recycler is None:
        return False
    recycler.began = time.perf_counter()
    recycler.reap(iterator)
    return any(not task.told for task in recycler.leaving)


def _reopen(iterator):
    recycler = patch._recycler(iterator)
    return recycler is not None and epoch.reopen(recycler, iterator)


def _settle(iterator):
    """Returns True once every place has a worker that works."""
    recycler = patch._recycler(iterator)
    if recycler is not None:
        epoch.settle(recycler, iterator)
    return True


def _renewal(iterator, loader):
    """Returns what replaces the workers of an iterable dataset before a new epoch, where that was asked for."""
    recycler = patch._recycler(iterator)
    if recycler is not None:
        # What was asked for a moment ago would else wait for another epoch.
        recycler.rest = patch._here().next = 0.0
        _poll(iterator)
        if not patch._off and iterable.due(recycler, iterator, loader):
            return iterable.Renewal(recycler, iterator, loader)


def _renewed(iterator, renewal):
    recycler = patch._recycler(iterator)
    if recycler is not None:
        renewal.report(recycler)
