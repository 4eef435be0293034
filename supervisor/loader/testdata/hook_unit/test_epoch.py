import types
import unittest

import hook
from _rsswarden import epoch, recycle


def iterator(status):
    return types.SimpleNamespace(_workers=list("abcdef"[:len(status)]), _index_queues=list(range(len(status))),
                                 _workers_status=list(status), _num_workers=len(status))


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

    def test_one_that_was_told_is_waited_for(self):
        r, it = Recycler(task(told=1.0)), iterator([True, False])

        def step(iterator):
            r.steps += 1
            if r.steps == 3:
                iterator._workers_status[1], r.task = True, None

        r.step, r.steps = step, 0
        epoch.settle(r, it)
        self.assertEqual((r.steps, it._num_workers), (3, 2))

    def test_where_that_raises_the_place_is_closed_up_and_what_was_begun_dropped(self):
        told = task(told=1.0, new="new")
        r, it = Recycler(told, step=hook.fails), iterator([True, False, True])
        with self.assertRaises(hook.Fault):  # for the guard around it
            epoch.settle(r, it)
        self.assertEqual((it._workers, r.task, r.dropped), (["a", "c"], None, [told]))


class Ending(unittest.TestCase):
    def test_torch_is_given_all_workers_that_live(self):
        old, new = task(pid=8, old_queue="q8"), task(new="n", new_queue="qn")
        r, it = Recycler(new, leaving=[old, task(told=1.0)], pids=(1, 2)), iterator([True, True])
        r.todo = [(5, 7, "swap")]
        ending = epoch.Ending(r, it)
        self.assertEqual((it._workers[2:], it._index_queues[2:], it._workers_status[2:]), (["n", old.old], ["qn", "q8"], [True, True]))
        self.assertEqual((ending._refused, r.todo, r.task, r.leaving, r.pids), ([(5, 7), (3, 9)], [], None, [], ()))
