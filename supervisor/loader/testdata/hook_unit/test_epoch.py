import itertools
import types
import unittest

import hook
from _rsswarden import epoch, recycle


def iterator(status):
    return types.SimpleNamespace(_workers=list("abcdef"[:len(status)]), _index_queues=list(range(len(status))),
                                 _workers_status=list(status), _num_workers=len(status), _task_info={},
                                 _worker_queue_idx_cycle=itertools.cycle(range(len(status))))


class Recycler(recycle.Recycler):
    """A recycler with a task, and what is done for it."""

    def __init__(self, task=None, **fields):
        super().__init__(hook.Side(), 1, None, None)
        self.task, self.dropped, self.unskipped = task, [], 0
        self.__dict__.update(fields)

    def unskip(self, iterator):
        self.unskipped += 1

    def drop(self, task):
        self.dropped.append(task)


def task(number=3, pid=9, **fields):
    made = recycle.Task(number, 1, types.SimpleNamespace(pid=pid), "drain")
    made.__dict__.update(fields)
    return made


class Settle(unittest.TestCase):
    def test_a_place_without_a_worker_is_closed_up(self):
        it = iterator([True, False, True, False])
        epoch.close_up(it)
        self.assertEqual((it._workers, it._index_queues, it._workers_status, it._num_workers), (["a", "c"], [0, 2], [True, True], 2))

    def test_a_worker_that_was_not_told_to_end_stays_and_is_asked_for_again(self):
        r, it = Recycler(task()), iterator([True, True])
        epoch.settle(r, it)
        self.assertEqual((r.task, r.todo, r.unskipped, it._num_workers), (None, [(3, 9, "drain")], 1, 2))

    def test_the_place_of_one_that_was_told_is_closed_while_the_epoch_begins(self):
        for fails in (False, True):
            told = task(told=1.0, old_queue="q")
            r, it = Recycler(told), iterator([True, False, True])
            if fails:
                r.reap = hook.fails
                with self.assertRaises(hook.Fault):  # for the guard around it
                    epoch.settle(r, it)
            else:
                epoch.settle(r, it)
            self.assertEqual((it._workers, it._num_workers), (["a", "c"], 2))
            r.step(it)  # does nothing until it is open
            it._task_info, it._workers_num_tasks = {0: (0,), 1: (1,), 2: (0, "data")}, [2, 1]
            self.assertTrue(epoch.reopen(r, it))
            self.assertEqual((it._workers, it._index_queues, it._workers_status, it._num_workers, it._workers_num_tasks),
                             (["a", told.old, "c"], [0, "q", 2], [True, False, True], 3, [2, 0, 1]))
            self.assertEqual(it._task_info, {0: (0,), 1: (2,), 2: (0, "data")})
            self.assertEqual([next(it._worker_queue_idx_cycle) for _ in range(4)], [0, 2, 0, 2])
            self.assertFalse(epoch.reopen(r, it))

    def test_it_is_closed_once(self):
        r, it = Recycler(task(told=1.0)), iterator([True, False, True])
        epoch.settle(r, it)
        epoch.settle(r, it)  # the first was not opened
        self.assertEqual(it._workers, ["a", "c"])
        it = iterator([True, False, True])
        it._rsswarden, r.task.closed = r, False
        epoch.close_up(it)
        self.assertTrue(r.task.closed)


class Ending(unittest.TestCase):
    def test_torch_is_given_all_workers_that_live(self):
        old, new = task(pid=8, old_queue="q8"), task(new="n", new_queue="qn")
        r, it = Recycler(new, leaving=[old, task(told=1.0)], pids=(1, 2)), iterator([True, True])
        r.todo = [(5, 7, "swap")]
        ending = epoch.Ending(r, it)
        self.assertEqual((it._workers[2:], it._index_queues[2:], it._workers_status[2:]), (["n", old.old], ["qn", "q8"], [True, True]))
        self.assertEqual((ending._refused, r.todo, r.task, r.leaving, r.pids), ([(5, 7), (3, 9)], [], None, [], ()))
