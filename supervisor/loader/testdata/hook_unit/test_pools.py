import itertools
import os
import pickle
import sys
import threading
import types
import unittest

import hook
from _rsswarden import pools


class Pool:
    """As multiprocessing's: the limit is set as it is made and read when it starts workers."""

    _ctx = types.SimpleNamespace(get_start_method=lambda: "fork")
    _initializer, _initargs = None, ()

    def __init__(self, limit=None):
        self._maxtasksperchild = limit


class ThreadPool(Pool):
    pass


class Executor:
    _max_workers = 2

    def _adjust_process_count(self):
        return "adjusted", self


def module(name, **has):
    made = types.ModuleType(name)
    made.__dict__.update(has)
    return made


def worker(inqueue, outqueue, initializer=None, initargs=(), maxtasks=None):
    pass


class Pools(unittest.TestCase):
    def setUp(self):
        for name in ("_off", "_owner", "_worker", "_hello", "_boundary", "_numbers", "_has_asked"):
            self.addCleanup(setattr, pools, name, getattr(pools, name))
        pools._numbers = itertools.count(pools._FIRST)
        pools._hello = lambda: True
        kinds = {"Pool": type("Pool", (Pool,), {}), "worker": worker}
        kinds["ThreadPool"] = type("ThreadPool", (kinds["Pool"],), {})
        self.multiprocessing = module("multiprocessing.pool", **kinds)
        if "t" not in sys.abiflags:
            pools.install(self.multiprocessing)

    def test_each_pool_has_a_number_of_its_own(self):
        made = [self.multiprocessing.Pool(limit)._maxtasksperchild for limit in (None, 5)]
        self.assertEqual([(int(n), n.pool) for n in made], [
            (number, (os.getpid(), pools._FIRST + i, "multiprocessing.Pool", "fork", None)) for i, number in enumerate((sys.maxsize, 5))])
        pool = self.multiprocessing.Pool()
        self.assertEqual(pool._maxtasksperchild.pool, pool._maxtasksperchild.pool)

    def test_a_pool_of_another_process_has_another_number(self):
        pool = self.multiprocessing.Pool()
        first = pool._maxtasksperchild.pool
        self.assertEqual(hook.in_child(lambda: pool._maxtasksperchild.pool.owner == os.getpid() != first.owner), 0)

    def test_an_executor_whose_class_has_an_end_of_its_own_keeps_its_workers(self):
        spawn = types.SimpleNamespace(get_start_method=lambda: "spawn")
        kind = type("Executor", (Executor,), {"_mp_context": spawn, "__del__": lambda self: None})
        executors = module("concurrent.futures.process", ProcessPoolExecutor=kind, _ExecutorManagerThread=None)
        self.assertIsNone(pools._executor(kind(), executors)[2])
        own = type("Own", (kind,), {"__del__": lambda self: None})
        self.assertIn("__del__", pools._executor(own(), executors)[2])

    def test_what_fails_at_the_end_of_an_executor_is_not_seen(self):
        executor = Executor()
        executor._pending_work_items = {1: None}
        said = []
        self.addCleanup(setattr, pools, "_tell_off", pools._tell_off)
        pools._tell_off = said.append
        pools._outlives(executor, module("concurrent.futures.process"))  # which has nothing of what is looked for
        self.assertTrue(pools._off)
        self.assertIn("_threads_wakeups", said[0])

    def test_what_is_left_alone(self):
        for limit in (0, -1, True, 2.5, "3", self.multiprocessing):  # the pool itself refuses some
            self.assertIs(self.multiprocessing.Pool(limit)._maxtasksperchild, limit)
        self.assertIsNone(self.multiprocessing.ThreadPool()._maxtasksperchild)
        pools._hello = lambda: False
        self.assertIsNone(self.multiprocessing.Pool()._maxtasksperchild)
        with self.assertRaises(AttributeError):
            self.multiprocessing.Pool.__new__(self.multiprocessing.Pool)._maxtasksperchild

    def test_a_limit_is_reached_when_the_worker_is_asked_to_go(self):
        limit, asked = pools.Limit(3, 1, 2, "k", "fork", None), []
        pools._boundary = lambda pool: asked.append(pool) or len(asked) > 2
        self.assertEqual([done < limit for done in (1, 2)], [True, True])
        self.assertEqual([done >= limit for done in (1, 3)], [True, True])
        self.assertEqual((2 < limit, limit == 3, limit - 1, hash(limit)), (False, True, 2, hash(3)))
        self.assertEqual(set(asked), {limit.pool})

    def test_it_is_an_int_where_there_is_no_hook(self):
        limit = pools.Limit(3, 1, 2, "k'", "fork", None)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            text = pickle.dumps(limit, protocol)
            self.assertEqual(pickle.loads(text).pool, limit.pool)
            here = sys.modules.pop("_rsswarden.pools")
            try:
                self.assertIs(type(pickle.loads(text)), int)
            finally:
                sys.modules["_rsswarden.pools"] = here

    def test_a_fork_waits_for_a_lock_that_another_thread_holds(self):
        for make in (threading.Lock, threading.RLock, threading.Condition):
            held, given, holds = make(), threading.Event(), threading.Event()

            def hold():
                lock = held
                with lock:
                    holds.set()
                    given.wait()

            self.assertTrue(pools._calm(False) and pools._calm(True))
            thread = threading.Thread(target=hold)
            thread.start()
            holds.wait()
            try:
                with self.subTest(make):
                    self.assertFalse(pools._calm(True))
            finally:
                given.set()
                thread.join()

    def test_what_an_initializer_may_hand_out(self):
        queue = type("Queue", (), {"__module__": "multiprocessing.queues"})()
        for given, stays in (((queue,), True), (([1, queue],), True), (([1] * 100 + [queue],), False), ((1,), False)):
            pool = self.multiprocessing.Pool()
            pool._initargs = given
            self.assertEqual(pools._handout(pool) is not None, stays, given)
        pool._initializer = lambda: os.current_process()._identity
        self.assertEqual(pools._handout(pool), pools._NUMBERED)

    def test_what_raises_in_it_leaves_the_program_as_it_is_bare(self):
        made, limit = self.multiprocessing.Pool(4), pools.Limit(3, 1, 2, "k", "fork", None)
        executor = type("Executor", (Executor,), {"_adjust_process_count": pools._Looked(Executor._adjust_process_count, hook.fails)})()
        warned = []
        warnings = pools._Warnings(types.SimpleNamespace(warn=lambda *given: warned.append(given), other=7))
        measure = pools._Measure(lambda pid, force_gc: (pid, force_gc))
        for name in ("_hello", "_boundary", "_has_asked"):
            setattr(pools, name, hook.fails)
        number = self.multiprocessing.Pool._maxtasksperchild
        for name, entry, bare in (
                ("a limit is read", lambda: made._maxtasksperchild, 4),
                ("it is set", lambda: number.__set__(made, 5), None),
                ("tasks are compared with it", lambda: (2 < limit, 3 < limit, 2 >= limit, 3 >= limit), (True, False, False, True)),
                ("an executor adjusts", lambda: executor._adjust_process_count(), ("adjusted", executor)),
                ("loky measures", lambda: (measure(7), measure(7, force_gc=True)), ((7, False), (7, True))),
                ("loky warns", lambda: warnings.warn("A worker stopped while", UserWarning), None),
                ("and asks for more of the module", lambda: warnings.other, 7)):
            with self.subTest(name):
                pools._off = False
                maker, pools._maker = pools._maker, hook.fails
                try:
                    self.assertEqual(entry(), bare)
                finally:
                    pools._maker = maker
                self.assertEqual(pools._off, name != "and asks for more of the module")
        self.assertEqual(warned, [("A worker stopped while", UserWarning, 2)])
        pools._off = True
        self.assertEqual((made._maxtasksperchild, 2 < limit), (5, True))
