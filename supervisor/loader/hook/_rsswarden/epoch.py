"""What a recycler does where an epoch, or the iterator itself, ends.

Before a persistent iterator starts over, torch throws away what the workers in
their places still deliver; one that has been replaced is not among them, so
patch takes its batches in first: old ones must not meet new indices. Where the
iterator ends, torch is given all workers that live, to end them as its own.
"""
import itertools
import time

from _rsswarden import birth, recycle


def settle(recycler, iterator):
    """Closes up every place without a working worker before a new epoch: torch waits for the worker in each.

    That of a worker that drains is opened again once torch has begun the epoch, see reopen.
    """
    recycler.began = time.perf_counter()
    task = recycler.task
    try:
        recycler.reap(iterator)
        if task is not None and task.mode == "drain" and not task.told:
            recycler.task = None
            recycler.todo.insert(0, (task.number, task.old.pid, task.mode))
            recycler.unskip(iterator)
    finally:
        task = recycler.task
        if task is not None and task.told and not task.closed:
            recycler.empty.add(task.worker_id)
            task.closed = True
        for worker_id in sorted(recycler.empty, reverse=True):
            _close(iterator, worker_id)
        recycler.empty.clear()


def close_up(iterator):
    """Closes up every place whose worker is given nothing: what remains to be done where settle failed."""
    for worker_id in reversed(range(len(iterator._workers))):
        if not iterator._workers_status[worker_id]:
            _close(iterator, worker_id)
    recycler = vars(iterator).get("_rsswarden")
    if recycler is not None and recycler.task is not None and recycler.task.told:
        recycler.task.closed = True


def reopen(recycler, iterator):
    """Opens the place of a worker that drains, which is given nothing yet; says whether there was one."""
    task = recycler.task
    if task is None or not task.closed:
        return False
    place, count = task.worker_id, iterator._num_workers + 1
    workers, queues, status = iterator._workers[:], iterator._index_queues[:], iterator._workers_status[:]
    workers.insert(place, task.old)
    queues.insert(place, task.old_queue)
    status.insert(place, False)
    infos = {number: (info[0] + (info[0] >= place),) + info[1:] for number, info in iterator._task_info.items()}
    if hasattr(iterator, "_workers_num_tasks"):  # newer than torch 2.6
        iterator._workers_num_tasks.insert(place, 0)
    # At once, or not at all.
    (iterator._workers, iterator._index_queues, iterator._workers_status, iterator._num_workers, iterator._task_info,
     iterator._worker_queue_idx_cycle, task.closed) = workers, queues, status, count, infos, itertools.cycle(range(count)), False
    recycler.skip(iterator, place)
    return True


def _close(iterator, worker_id):
    # No batch is in flight: torch renumbers the remaining workers.
    del iterator._workers[worker_id]
    del iterator._index_queues[worker_id]
    del iterator._workers_status[worker_id]
    iterator._num_workers -= 1


class Ending:
    """The end of an iterator's workers: made before torch ends them, finished after."""

    def __init__(self, recycler, iterator):
        self._recycler = recycler
        self._refused = [(number, pid) for number, pid, _ in recycler.todo + (recycler.held.requests if recycler.held else [])]
        self._gone = []
        self._new = None  # the task whose replacement had not been given work
        task = recycler.task
        if task is not None:
            self._refused.append((task.number, task.old.pid))
            recycler.answered(iterator, wait=True)
            if task.new is not None:
                self._new = task
                self._adopt(iterator, task.new, task.new_queue)
        for task in recycler.leaving:
            self._gone.append(task)
            if not task.told:
                task.before = recycle._rss(task.old.pid)
                self._adopt(iterator, task.old, task.old_queue)
        recycler.todo, recycler.task, recycler.leaving = [], None, []
        if recycler.helper is not None:
            recycler.helper.close()
        self._helper = recycler.helper or recycler.unhelped
        recycler.helper = recycler.unhelped = None
        recycler.pids = ()
        recycler.why = "loader ended"

    @staticmethod
    def _adopt(iterator, process, index_queue):
        iterator._workers.append(process)
        iterator._index_queues.append(index_queue)
        iterator._workers_status.append(True)

    def finish(self):
        self._recycler.began = time.perf_counter()
        for task in self._gone:
            task.pressed += birth.end(task.old, recycle._TOLD)
            self._recycler.recycled(task)
        if self._new is not None:
            self._recycler.unlink(self._new)  # which it may have made until now
        if self._helper is not None:
            self._helper.reap(recycle._TOLD)
        for number, pid in self._refused:
            self._recycler.refuse(number, pid, "loader ended")
        self._recycler.side.say("ended", n=self._recycler.number)
