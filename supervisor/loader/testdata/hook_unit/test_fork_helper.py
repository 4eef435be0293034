import ctypes
import gc
import multiprocessing
import os
import queue
import signal
import tempfile
import unittest
import warnings
from unittest import mock

import hook
from _rsswarden import birth, fork_helper

FILLED = {"index_queue": ("own", ""), "worker_id": ("own", ""), "base_seed": ("own", ""), "data": ("in", "_dataset")}
PASSED = []  # signals whose handler ran


def take(index_queue):
    while True:
        try:
            return index_queue.get(timeout=60)
        except queue.Empty:  # a Probe, as torch meets it
            pass


def loop(index_queue, worker_id, base_seed, data):
    """Stands for torch's: says what the worker sees, then takes its orders."""
    tid = ctypes.c_void_p()
    ctypes.CDLL(None).prctl(40, ctypes.byref(tid), *[ctypes.c_ulong()] * 3)
    me, parent = multiprocessing.current_process(), multiprocessing.parent_process()
    data[0].said.put({
        "worker_id": worker_id, "base_seed": base_seed, "ppid": os.getppid(), "parent": parent.pid, "alive": parent.is_alive(),
        "pid": os.getpid(), "tid": ctypes.c_int.from_address(tid.value).value, "name": me.name, "identity": me._identity,
        "daemon": me.daemon, "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "gc": gc.isenabled(),
        "first": take(index_queue),
    })
    take(index_queue)


class Iterator:
    def __init__(self):
        self._dataset = type("Data", (), {})()
        self._dataset.said = multiprocessing.get_context("fork").SimpleQueue()


class ForkHelper(unittest.TestCase):
    def setUp(self):
        if os.uname().machine not in fork_helper._CALLS:
            self.skipTest("no fork helper on " + os.uname().machine)
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside the threads of queues
        self.folder = tempfile.TemporaryDirectory()
        self.make()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.end)

    def make(self):
        self.iterator, self.queues = Iterator(), []
        self.helper = fork_helper.Helper(self.iterator, multiprocessing.get_context("fork"), loop, FILLED, 0)

    def end(self):
        self.helper.close()
        self.assertTrue(self.helper.reap(30))
        for index_queue in self.queues:
            index_queue.close()
            index_queue._thread.join()

    def start(self, worker_id=3):
        asked = self.helper.ask(worker_id, 4711, os.path.join(self.folder.name, "ready%d" % len(self.queues)))
        self.queues.append(asked.queue)
        return self.helper.answer(asked, wait=True), asked.queue

    def refused(self, why):
        with self.assertRaises(birth.Refused) as got:
            self.start()
        self.assertIn(why, str(got.exception))

    def test_its_workers_are_ours_and_like_others(self):
        for worker_id in (3, 5):
            process, index_queue = self.start(worker_id)
            index_queue.put("work")
            said = self.iterator._dataset.said.get()
            self.assertEqual(said, {
                "worker_id": worker_id, "base_seed": 4711, "ppid": os.getpid(), "parent": os.getpid(), "alive": True,
                "pid": process.pid, "tid": process.pid, "name": process.name, "identity": process._identity, "daemon": True,
                "mask": 0, "gc": True, "first": "work"})
            self.assertIn(process, multiprocessing.active_children())
            birth.put(index_queue, birth.Quit())
            process.join(60)
            self.assertEqual(process.exitcode, 0)

    def test_a_worker_that_is_killed(self):
        process, _ = self.start()
        process.kill()
        process.join(60)
        self.assertEqual(process.exitcode, -signal.SIGKILL)

    def test_a_worker_ends_with_its_queue(self):
        process, index_queue = self.start()
        index_queue.close()
        process.join(60)
        self.assertEqual(process.exitcode, 0)

    def test_it_is_not_one_of_the_programs_children(self):
        self.assertEqual(multiprocessing.active_children(), [])

    def test_no_handler_of_the_program_runs_in_it(self):
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: os._exit(3)))
        os.kill(self.helper.pid, signal.SIGUSR1)
        process, index_queue = self.start()
        birth.put(index_queue, birth.Quit())
        process.join(60)

    def test_it_ends_at_sigterm_or_when_it_is_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(self.helper.pid, number)
            os.waitid(os.P_PID, self.helper.pid, os.WEXITED | os.WNOWAIT)
            self.refused("it has ended")
            self.end()
            self.make()

    def test_one_that_cannot_says_why(self):
        for name, instead, why in (("_sees", lambda *_: False, "thread's id elsewhere"), ("check", hook.fails, "Fault")):
            self.end()
            with mock.patch.object(fork_helper._Fork, name, instead):
                self.make()
            self.refused(why)

    def test_what_has_changed_is_refused(self):
        self.helper.check(self.iterator)
        self.iterator._dataset.epoch = 1
        with self.assertRaises(birth.Refused):
            self.helper.check(self.iterator)

    def test_one_that_does_not_answer_is_given_up(self):
        self.addCleanup(setattr, fork_helper, "_PATIENCE", fork_helper._PATIENCE)
        fork_helper._PATIENCE = 0.1
        os.kill(self.helper.pid, signal.SIGSTOP)
        self.refused("no answer")
        os.kill(self.helper.pid, signal.SIGCONT)
