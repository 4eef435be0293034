"""What a recycler does where an epoch, or the iterator itself, ends.

Before a persistent iterator starts over, torch throws away what the workers in
their places still deliver; one that has been replaced is not among them, so
patch takes its batches in first: old ones must not meet new indices. Where the
iterator ends, torch is given all workers that live, to end them as its own.
"""
import time

from _rsswarden import birth, recycle


def settle(recycler, iterator):
    """Brings every place to one working worker, or closes it up, before a new epoch."""
    recycler.began = time.perf_counter()
    task = recycler.task
    try:
        recycler.reap(iterator)
        if task is not None and task.mode == "drain" and task.told:
            # torch waits for the worker in each place. This ends where the old one does not, or the new one does not come up.
            while recycler.task is not None:
                recycler.step(iterator)
                time.sleep(0.002)
        elif task is not None and task.mode == "drain":
            recycler.task = None
            recycler.todo.insert(0, (task.number, task.old.pid, task.mode))
            recycler.unskip(iterator)
    finally:
        task = recycler.task
        if task is not None and task.told:
            recycler.answered(iterator, wait=True)
            recycler.empty.add(task.worker_id)
            recycler.task = None
            if task.new is not None:
                recycler.drop(task)
        for worker_id in sorted(recycler.empty, reverse=True):
            _close(iterator, worker_id)
        recycler.empty.clear()


def close_up(iterator):
    """Closes up every place whose worker is given nothing: what remains to be done where settle failed."""
    for worker_id in reversed(range(len(iterator._workers))):
        if not iterator._workers_status[worker_id]:
            _close(iterator, worker_id)


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
