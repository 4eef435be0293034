"""Replacing a loader's workers one by one while it runs.

No batch is lost, doubled or reordered: a worker is ended only when the program
has got all that it was given (a batch may refer to what lives as long as the
worker, such as shared memory or temporary files), and its replacement is given
work, and watched by torch, only once it has said that it is up.

swap   starts the replacement, gives it the worker's place once it is up, and
       ends the worker when the batches it still owes were handed to the program
drain  gives the worker nothing more, ends it when its batches were handed out,
       and starts the replacement then: never a process more

All of it runs in the trainer, inside its call for the next batch.
"""
import functools
import itertools
import operator
import os
import threading
import time

from _rsswarden import birth, guard

_PATIENCE = 120.0  # seconds until a replacement that has not come up is given up
_TOLD = 5.0  # seconds until a worker that was told to end is terminated, and again until it is killed
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Task:
    """One replacement on its way."""

    def __init__(self, number, worker_id, old, mode):
        self.number, self.worker_id, self.old, self.mode = number, worker_id, old, mode
        self.old_queue = None
        self.owed = set()  # indices of batches that the old worker was given and the program has not got
        self.told = 0.0  # when the old worker was told to end
        self.closed = False  # the worker's place is closed while torch begins an epoch
        self.pressed = 0  # how often it was made to
        self.ended = 0.0  # when it was first seen to have ended
        self.new, self.new_queue, self.ready = None, None, None
        self.asked = None  # of the fork helper, until the replacement is there
        self.starting = 0.0  # seconds that the trainer spent to start it
        self.began = 0.0  # when the replacement was started
        self.paused = 0.0
        self.before = self.after = 0


def _skip(cycle, worker_id):
    """Returns the cycle of worker ids without one of them. There must be others.

    It is made of C alone: torch runs it, without a guard of ours.
    """
    return itertools.filterfalse(functools.partial(operator.eq, worker_id), cycle)


class Recycler:
    """Replaces the workers of one iterator. It holds no reference to it: iterators end when they are let go."""

    def __init__(self, side, number, context, torch_parts):
        self.side, self.number, self.context, self.torch = side, number, context, torch_parts
        self.todo = []  # requests: id, PID, mode
        self.task = None  # the one on its way: warming (swap) or draining (drain)
        self.leaving = []  # tasks whose replacement works and whose old worker has not ended
        self.generation = 0
        self.workers = 0  # how many the iterator was made with
        self.pids = ()  # of the workers that are given work
        self.pipes = None  # that were open when they were made, None where they are not forked
        self.began = 0.0  # when the call under way began
        self.why = None  # no more is begun, and why
        self.held = None  # requests that wait for the next epoch, where the loader can do it there alone
        self.cycles = None  # torch's of worker ids, and the one without a worker that drains
        self.turn = threading.Lock()  # of the thread that polls
        self.rest = 0.0  # until when there is nothing to be done at a batch
        self.empty = set()  # worker ids that have no worker: a replacement could not be started
        self.helper = None  # forks in place of the trainer, see fork_helper
        self.unhelped = None  # one that was let go of and has not ended

    def poll(self, iterator):
        """Takes what is under way one step on, and begins what was asked for."""
        self.began = time.perf_counter()
        busy = self.task
        if self.unhelped is not None and self.unhelped.reap():
            self.unhelped = None
        if self.leaving:
            busy = busy or self.leaving[0]
            self.reap(iterator)
        if self.task is not None:
            self.step(iterator)
        if self.todo and self.task is None and not self.leaving and not iterator._shutdown:
            self._begin(iterator, *self.todo.pop(0))
            busy = busy or self.task
        if busy is not None:
            busy.paused += time.perf_counter() - self.began

    def say(self, what, task, **fields):
        self.side.say(what, n=self.number, id=task.number, k=task.worker_id, worker=task.old.pid, mode=task.mode,
                      **fields)

    def refuse(self, number, pid, why, **fields):
        self.side.say("refused", n=self.number, id=number, worker=pid, why=why, **fields)

    def _begin(self, iterator, number, pid, mode):
        if self.held is not None:
            self.held.take(self, iterator, number, pid, mode)
            return
        for worker_id, process in enumerate(iterator._workers):
            if process.pid == pid and iterator._workers_status[worker_id]:
                break
        else:
            self.refuse(number, pid, "process has ended")
            return
        # A single worker has no other to take its work; without order torch
        # may lose an index where a worker is skipped.
        if len(iterator._workers) < 2 or not getattr(iterator, "_in_order", True):
            mode = "swap"
        untried = self.torch.untried() if self.why is None else None
        if untried is not None:
            self.refuse(number, pid, untried)  # not for good: a trial may be under way
            return
        if self.helper is not None and self.why is None:
            try:
                self.helper.check(iterator)
            except Exception as error:
                self.unhelp(error)
        if self.helper is None:
            self.why = self.why or birth.forbids(self.context)
        if mode == "drain":
            self.why = self.why or birth.unpicklable(iterator, self.context, self.torch.filled)
        if self.why is not None:
            self.refuse(number, pid, self.why)
            return
        task = Task(number, worker_id, process, "drain" if mode == "drain" else "swap")
        task.old_queue = iterator._index_queues[worker_id]
        if task.mode == "drain":
            self.task = task
            self.unskip(iterator)
            self.skip(iterator, worker_id)
            self.step(iterator)
        elif self._start(iterator, task):
            self.task = task

    def skip(self, iterator, worker_id):
        """Has torch give a worker nothing more."""
        whole = iterator._worker_queue_idx_cycle
        self.cycles = whole, _skip(whole, worker_id)
        iterator._worker_queue_idx_cycle = self.cycles[1]

    def unskip(self, iterator):
        """Gives torch its cycle back. A new epoch may have begun another."""
        if self.cycles is not None and iterator._worker_queue_idx_cycle is self.cycles[1]:
            iterator._worker_queue_idx_cycle = self.cycles[0]
        self.cycles = None

    def _start(self, iterator, task):
        """Starts the replacement; where the system refuses, recycling stops for good."""
        began = time.perf_counter()
        self.generation += 1
        seed = iterator._base_seed + self.workers * self.generation
        if self.helper is not None:
            try:
                task.asked = self.helper.ask(task.worker_id, seed, self.side.ready_file(self.side.pid))
                task.starting = time.perf_counter() - began
                return True
            except Exception as error:
                self.unhelp(error)
        self.why = birth.forbids(self.context)
        if self.why is None:
            try:
                task.new, task.new_queue, task.ready = birth.start(
                    iterator, task.worker_id, seed, self.context, self.torch.loop, self.torch.filled, self.side.ready_file)
            except Exception as error:
                if not guard.ours(error):
                    raise
                self.why = birth.refused(error)
        if self.why is not None:
            self.refuse(task.number, task.old.pid, self.why)
            return False
        self._started(task, time.perf_counter() - began)
        return True

    def _started(self, task, paused):
        task.began = time.monotonic()
        self.say("started", task, new=task.new.pid, pause_ms=paused * 1e3, helper=self.helper.pid if self.helper else 0)

    def answered(self, iterator, wait=False):
        """Says whether the task has its replacement, also where the fork helper failed and the trainer forks; wait: until it does, or not at all."""
        task, began = self.task, time.perf_counter()
        asked = task.asked
        if asked is None:
            return task.new is not None
        try:
            task.new = self.helper.answer(asked, wait)
        except Exception as error:
            task.asked = None
            self.unhelp(error)
            if wait:
                return False
            if not self._start(iterator, task):
                self.task = None
                if task.mode == "drain":
                    self.empty.add(task.worker_id)
            return self.task is not None
        if task.new is None:
            return False
        task.asked, task.new_queue, task.ready = None, asked.queue, asked.ready
        birth.started(iterator, task.new, task.new_queue)
        self._started(task, task.starting + time.perf_counter() - began)
        return True

    def unhelp(self, error):
        """Lets go of the fork helper: from now on the trainer forks, where it may."""
        if not isinstance(error, birth.Refused):
            if not guard.ours(error):
                raise error
            error = guard.describe(error)
        self.helper.close()
        self.unhelped, self.helper = self.helper, None
        self.side.say("refused", n=self.number, why="fork helper: %s" % error)

    def short(self, left):
        """Lets go of a fork helper that may hold more memory than is left; without it, some trainers could not replace anything."""
        if self.helper is not None and left is not None and not (self.task and self.task.asked):
            if left * (4 if birth.forbids(self.context) else 1) < self.helper.cost:
                self.unhelp(birth.Refused("little memory is left"))

    def step(self, iterator):
        if self.task.closed:
            return  # opening its place failed: it stays as it is
        if self.task.mode == "drain":
            self._drain(iterator)
        else:
            self._warm(iterator)

    def _warm(self, iterator):
        task = self.task
        if not self.answered(iterator):
            return
        alive = not birth.ended(task.new) or birth.unreported(task.new)
        if alive and self._up(task):
            if task.mode == "drain":
                self._refill(iterator)
            else:
                self._take_over(iterator)
            self.unlink(task)
            return
        if alive and time.monotonic() - task.began <= _PATIENCE:
            return
        why = "replacement did not come up: " + ("in %d s" % _PATIENCE if alive else "status %s" % task.new.exitcode)
        if task.mode == "drain":
            self.why = why  # each try would cost a worker
            self.empty.add(task.worker_id)
        self.task = None
        self.drop(task)
        self.refuse(task.number, task.old.pid, why, new=task.new.pid)

    def _up(self, task):
        """Says whether a replacement works."""
        return os.path.exists(task.ready)

    def drop(self, task):
        """Ends a replacement that was given nothing yet."""
        task.new.kill()
        task.new_queue.close()
        self.unlink(task)

    @staticmethod
    def unlink(task):
        try:
            os.unlink(task.ready)
        except OSError:
            pass

    def _take_over(self, iterator):
        """Gives the replacement the worker's place; the worker keeps the batches it was given."""
        task = self.task
        task.owed = self._owed(iterator, task.worker_id)
        self.leaving = self.leaving + [task]  # first: a handler of SIGCHLD looks for the old worker here or there
        iterator._workers[task.worker_id], iterator._index_queues[task.worker_id] = task.new, task.new_queue
        self.task = None
        self._watch(iterator)
        self.say("swapped", task, new=task.new.pid, count=len(task.owed))
        self.reap(iterator)

    def _owed(self, iterator, worker_id):
        # Those that came before their turn are there until they are handed out.
        return {i for i, info in iterator._task_info.items() if info[0] == worker_id}

    def _watch(self, iterator):
        """Has torch's handler of SIGCHLD watch the workers that owe batches, and no other."""
        self.pids = tuple(w.pid for w in iterator._workers)
        if not iterator._worker_pids_set:
            return
        # One that was told to end owes nothing: should it crash on its way out, the training need not.
        watched = [w.pid for w in iterator._workers
                   if not (self.task is not None and self.task.told and w is self.task.old)]
        watched += [t.old.pid for t in self.leaving if not t.told]
        signals = self.torch.utils.signal_handling
        signals._remove_worker_pids(id(iterator))
        signals._set_worker_pids(id(iterator), tuple(watched))

    def _tell(self, iterator, task):
        """Tells the old worker to end. The program has got all that it was given."""
        task.before = _rss(task.old.pid)
        if task.new is not None:
            task.after = _rss(task.new.pid)
        task.told = time.monotonic()
        try:
            self._watch(iterator)
        finally:
            birth.put(task.old_queue, birth.Quit())

    def reap(self, iterator):
        """Ends the workers that were replaced once they owe nothing, and reports those that have ended."""
        for task in list(self.leaving):
            if not task.told:
                task.owed = {i for i in task.owed if i in iterator._task_info}
                if not task.owed:
                    self._tell(iterator, task)
                    task.old_queue.close()
            if task.told and self._gone(task):
                self.leaving.remove(task)
                self.recycled(task)

    @staticmethod
    def _gone(task):
        """Says whether a worker that was told to end has, and its status is known or will not be.

        One that does not end, such as for a thread of its own, is made to.
        """
        now = time.monotonic()
        if birth.ended(task.old):
            task.ended = task.ended or now
            return not birth.unreported(task.old) or now - task.ended > birth.REPORT
        if now - task.told > _TOLD * (task.pressed + 1):
            birth.press(task.old, task.pressed)
            task.pressed += 1
        return task.pressed > 2  # in the kernel's hands; it owes nothing

    def recycled(self, task):
        outcome = birth.outcome(task.old, task.pressed)
        paused = task.paused + time.perf_counter() - self.began
        self.say("recycled", task, new=task.new.pid, before=task.before, after=task.after, pause_ms=paused * 1e3, **outcome)

    def _drain(self, iterator):
        task = self.task
        if task.new is not None or task.asked is not None:
            self._warm(iterator)
            return
        if not task.told:
            if self._owed(iterator, task.worker_id):
                return
            # It owes no batch and gets no more, so its end loses nothing.
            iterator._workers_status[task.worker_id] = False
            self._tell(iterator, task)
        if self._gone(task) and not self._start(iterator, task):
            self.task = None
            self.empty.add(task.worker_id)  # closed up at the next epoch; until then the others carry on

    def _refill(self, iterator):
        """Gives the replacement, which is up, the place of the worker that has ended."""
        task = self.task
        task.old_queue.close()
        task.after = _rss(task.new.pid)
        iterator._workers[task.worker_id], iterator._index_queues[task.worker_id] = task.new, task.new_queue
        iterator._workers_status[task.worker_id] = True
        self.task = None
        self.unskip(iterator)
        self._watch(iterator)
        self.recycled(task)


# Attributes of torch's iterator that recycling reads or writes.
_KNOWN = ("_worker_queue_idx_cycle", "_worker_pids_set", "_shutdown", "_base_seed", "_pin_memory", "_task_info")
_LISTS = ("_workers", "_index_queues", "_workers_status")


def unknown(iterator, filled):
    """Says what of a new iterator is not as known, or None; filled says what its workers' loop is given."""
    for name in _LISTS:
        if len(getattr(iterator, name, ())) != iterator._num_workers:
            return "torch's iterator has no %s by worker" % name
    for name in _KNOWN + birth.needed(filled):
        if not hasattr(iterator, name):
            return "torch's iterator has no %s" % name
    workers = [(worker_id,) for worker_id in range(iterator._num_workers)]
    if not all(info[:1] in workers for info in iterator._task_info.values()):
        return "torch's iterator has another _task_info"
    return None


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
