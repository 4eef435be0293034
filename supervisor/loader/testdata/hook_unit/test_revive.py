import gc
import multiprocessing
import os
import queue
import random
import signal
import struct
import sys
import threading
import time
import types
import unittest
import weakref

import hook

channel = sys.modules.setdefault("_rsswarden.channel", __import__("_rsswarden.channel", fromlist=["channel"]))
from _rsswarden import epoch, patch, recycle, revive

FORK = multiprocessing.get_context("fork")
COUNT = 120


class Resume:
    """What torch sends to persistent workers as an epoch begins."""

    def __init__(self, seed):
        pass


class Held:
    """Something that is fetched from its worker while it is unpickled, as a tensor is."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        reader, writer = FORK.Pipe(duplex=False)
        writer.send(self.number)
        return receive, (reader,)


def receive(reader):
    return reader.recv()


def work(index_queue, results, done, kind, worker_id, base_seed):
    """Does what torch's _worker_loop does with the queues."""
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            task = index_queue.get(timeout=5)
        except queue.Empty:
            continue
        if isinstance(task, Resume):
            results.put((task, None))
            continue
        if task is None:
            break
        if done.is_set():
            continue
        number, index = task
        until = time.perf_counter() + random.random() * 0.002
        while time.perf_counter() < until:
            pass
        if kind == "late" and index < 3:
            time.sleep(1)
        if kind == "poison" and index == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        data = {"big": b"x" * 300000, "held": Held(index)}.get(kind, b"")
        results.put((number, (index, data)))
        del index, data
    if done.is_set():
        results.cancel_join_thread()
        results.close()


class Signals:
    """torch's record of the workers whose death its handler of SIGCHLD raises for."""

    def __init__(self):
        self.pids = {}
        self.died = []  # deaths that it would raise for, taken at the next call

    def _set_worker_pids(self, key, pids):
        assert key not in self.pids
        self.pids[key] = set(pids)

    def _remove_worker_pids(self, key):
        del self.pids[key]

    def _error_if_any_worker_fails(self):
        for pids in list(self.pids.values()):
            for pid in list(pids):
                try:
                    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    continue
                if info is not None and info.si_status:
                    pids.clear()
                    raise RuntimeError("DataLoader worker (pid %d) is killed by signal: Killed. " % pid)


class Iterator:
    """The part of torch's iterator that this rests on, in its words."""

    def __init__(self, torch, side, kind, workers, pin, which, context=FORK):
        self.torch, self._dataset_kind, self._num_workers, self._pin = torch, 0, workers, pin
        self.patience, self._timeout = 5, 0
        self._kind, self._base_seed, self._shared_seed, self._shutdown = kind, 1, None, False
        self._persistent_workers, self._pin_memory = True, pin
        self._worker_result_queue, self._workers_done_event = context.Queue(), context.Event()
        self._index_queues, self._workers = [], []
        for worker_id in range(workers):
            index_queue = context.Queue()
            index_queue.cancel_join_thread()
            process = context.Process(target=work, args=(index_queue, self._worker_result_queue, self._workers_done_event, kind, worker_id, 1))
            process.daemon = True
            process.start()
            self._index_queues.append(index_queue)
            self._workers.append(process)
        self._data_queue, self._pin_done = self._worker_result_queue, threading.Event()
        if pin:
            self._data_queue = queue.Queue()
            self._pin_memory_thread = threading.Thread(target=pin_loop, args=(self._worker_result_queue, self._data_queue, self._pin_done), daemon=True)
            self._pin_memory_thread.start()
            time.sleep(0.05)  # it waits in torch's own get by then, as in most programs
        torch.utils.signal_handling._set_worker_pids(id(self), [w.pid for w in self._workers])
        self._worker_pids_set = True
        patch._torch = torch
        channel.setting = {"revive": which}.get
        revive.begin(self, torch)
        self._reset(True)
        recycler = recycle.Recycler(side, 1, context, torch)
        recycler.workers, recycler.pids = workers, tuple(w.pid for w in self._workers)
        self._rsswarden = recycler

    def _reset(self, first):
        self._order, self._send_idx, self._rcvd_idx, self._task_info = iter(range(COUNT)), 0, 0, {}
        self._workers_status, self._turn = [True] * self._num_workers, 0
        if not first:
            life = revive.resume(self)
            for index_queue in self._index_queues:
                index_queue.put(Resume(None))
            left = self._num_workers
            while left:
                left -= isinstance(self._get_data()[0], Resume)
            if life is not None:
                life.resuming, life.resumed = False, 0
        for _ in range(2 * self._num_workers):
            self._try_put_index()

    def _try_put_index(self):
        index = next(self._order, None)
        if index is not None:
            self._index_queues[self._turn].put((self._send_idx, index))
            self._task_info[self._send_idx] = (self._turn,)
            self._send_idx, self._turn = self._send_idx + 1, (self._turn + 1) % self._num_workers

    def _get_data(self):
        while True:
            try:
                return self._data_queue.get(timeout=self.patience)
            except Exception as error:
                dead = [w.pid for k, w in enumerate(self._workers) if self._workers_status[k] and not w.is_alive()]
                if dead:
                    raise RuntimeError("DataLoader worker (pid(s) %s) exited unexpectedly" % dead) from error
                if not isinstance(error, queue.Empty):
                    raise

    def __next__(self):
        if self._rcvd_idx == self._send_idx:
            raise StopIteration
        while len(self._task_info[self._rcvd_idx]) == 1:
            number, data = self._get_data()
            self._task_info[number] += (data,)
        index, data = self._task_info.pop(self._rcvd_idx)[1]
        self._rcvd_idx += 1
        self._try_put_index()
        assert data in (b"", index) or len(data) == 300000
        return index

    def __iter__(self):
        return self

    def close(self):
        revive.end(self, FORK)
        self._shutdown = True
        if self._pin:
            self._pin_done.set()
            self._worker_result_queue.put((None, None))
            self._pin_memory_thread.join()
            self._worker_result_queue.cancel_join_thread()
        self._workers_done_event.set()
        for index_queue in self._index_queues:
            index_queue.put(None)
        for process in self._workers:
            process.join(5)
        for index_queue in self._index_queues:
            index_queue.cancel_join_thread()
            index_queue.close()
        if self._worker_pids_set:
            self.torch.utils.signal_handling._remove_worker_pids(id(self))
        alive = [w for w in self._workers if w.is_alive()]
        for process in alive:
            process.kill()
            process.join()
        return alive


def pin_loop(source, sink, done):
    while not done.is_set():
        try:
            number, data = source.get(timeout=5)
        except queue.Empty:
            continue
        sink.put((number, data))


class Torch:
    """The parts of torch that are used."""

    def __init__(self):
        signals = Signals()
        self.utils = types.SimpleNamespace(signal_handling=signals, MP_STATUS_CHECK_INTERVAL=5.0)
        self.loop, self._dataloader = work, types.SimpleNamespace(_MultiProcessingDataLoaderIter=Iterator)
        self.filled = {"index_queue": ("own", ""), "results": ("is", "_worker_result_queue"), "done": ("is", "_workers_done_event"),
                       "kind": ("is", "_kind"), "worker_id": ("own", ""), "base_seed": ("own", "")}

    why, unrevived, waits = None, "", None  # waits: why recycling may not be done yet

    def untried(self):
        return self.waits

    def part(self, name):
        return types.SimpleNamespace(_ResumeIteration=Resume)


class Case(unittest.TestCase):
    def setUp(self):
        self.torch, self.side = Torch(), hook.Side()
        self.before = patch._torch, channel.setting, patch._failed, patch._off, revive._checked, signal.getsignal(signal.SIGCHLD)
        revive._checked = None
        self.torch.utils.signal_handling  # as torch's handler has it
        signal.signal(signal.SIGCHLD, lambda number, frame: self.torch.utils.signal_handling._error_if_any_worker_fails())
        patch._failed = self.failed
        self.errors, self.iterator = [], None

    def tearDown(self):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if self.iterator is not None:
            for process in self.iterator._workers:
                process.kill()
        patch._torch, channel.setting, patch._failed, patch._off, revive._checked, handler = self.before
        signal.signal(signal.SIGCHLD, handler)

    def failed(self, error):
        self.errors.append(error)
        return True

    def start(self, kind="", workers=3, pin=False, which=2):
        self.iterator = Iterator(self.torch, self.side, kind, workers, pin, which)
        return self.iterator

    def revived(self):
        return [s for s in self.side.said if s["what"] == "revived" and s["why"] != "restarted with another"]


class Kills(Case):
    """Workers are killed at random moments; every batch comes once, in its place."""

    def run_with_kills(self, kills, **shape):
        iterator, killed = self.start(**shape), 0
        due, stop = threading.Event(), threading.Event()

        def kill():
            while not stop.is_set():
                if due.wait(0.05):
                    due.clear()
                    time.sleep(random.random() * 0.01)
                    process = random.choice(iterator._workers)  # first: whoever has a batch then has its deaths counted
                    if max(list(revive.of(iterator).tries.values()), default=0) >= revive.TRIES - 1:
                        continue  # at a third death over a batch it is torch's error, see Ends
                    try:
                        os.kill(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # it was killed just now

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        while killed < kills:
            came = []
            for index in iterator:
                came.append(index)
                if index % 8 == 7:
                    due.set()
                    killed += 1
            self.assertEqual((came, self.errors), (list(range(COUNT)), []))
            if killed < kills:
                iterator._reset(False)
        stop.set()
        killer.join()
        self.assertEqual(iterator.close(), [])
        self.assertTrue(self.revived())
        return self.revived()

    COUNT = int(os.environ.get("RSSWARDEN_KILLS", 4))

    def test_small(self):
        self.run_with_kills(self.COUNT)

    def test_larger_than_the_pipe(self):
        self.run_with_kills(self.COUNT, kind="big")

    def test_one_worker(self):
        self.run_with_kills(self.COUNT, kind="big", workers=1)

    def test_fetched_from_the_worker(self):
        self.run_with_kills(self.COUNT, kind="held")

    def test_pin_thread(self):
        self.run_with_kills(self.COUNT, kind="big", pin=True)

    def test_pin_thread_before_its_first_message(self):
        iterator = self.start(kind="late", pin=True)
        for _ in range(50):
            if revive.of(iterator).ready:
                break
            time.sleep(0.01)
        self.assertTrue(revive.of(iterator).ready)
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        self.assertEqual((list(iterator), self.errors), (list(range(COUNT)), []))
        self.assertEqual(iterator.close(), [])

    def test_pin_thread_that_fetches(self):
        self.run_with_kills(self.COUNT, kind="held", pin=True)


class Waits(Case):
    """The iterator's torch is tried while it goes on."""

    def start_untried(self, **shape):
        self.torch.waits = "torch 9 has not been tried here"
        iterator = self.start(**shape)
        came = [next(iterator) for _ in range(20)]
        self.assertFalse(revive.tried(iterator, self.torch))
        self.assertIsNone(revive.of(iterator))
        iterator._rsswarden_given.next = 0  # else it looks again a second later
        return iterator, came

    def after_the_trial(self, **shape):
        iterator, came = self.start_untried(**shape)
        self.torch.waits = None
        while not revive.tried(iterator, self.torch):
            iterator._rsswarden_given.next = 0
            came.append(next(iterator))
        self.assertLess(len(came), 30)
        self.assertFalse(revive.tried(iterator, self.torch))
        for index in iterator:
            came.append(index)
            if index in (30, 40):
                os.kill(iterator._workers[index % 3].pid, signal.SIGKILL)
        self.assertEqual((came, self.errors), (list(range(COUNT)), []))
        self.assertEqual(len(self.revived()), 2)
        iterator.close()

    def test_dead_workers_are_replaced_once_it_went_well(self):
        self.after_the_trial()

    def test_dead_workers_are_replaced_behind_a_pin_thread(self):
        self.after_the_trial(kind="held", pin=True)

    def test_a_message_that_the_pin_thread_is_inside_of_is_torchs(self):
        self.torch.utils.MP_STATUS_CHECK_INTERVAL = 0.1
        iterator, came = self.start_untried(pin=True)
        self.torch.waits, results = None, iterator._worker_result_queue
        with results._wlock:
            os.write(results._writer.fileno(), struct.pack("!i", 1 << 30))  # as much of it as a worker that is killed may write
        while results._reader.poll(0):
            time.sleep(0.001)  # until the thread has read that
        self.assertFalse(revive.tried(iterator, self.torch))
        self.assertIsNotNone(revive.of(iterator))
        with self.assertRaisesRegex(RuntimeError, "is killed by signal|exited unexpectedly"):
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
            for index in iterator:
                came.append(index)
        self.assertEqual((came, self.revived(), self.errors), (list(range(len(came))), [], []))

    def test_no_more_indices_are_kept_than_are_asked_for(self):
        iterator, came = self.start_untried()
        given = iterator._rsswarden_given
        for number in range(10 * revive._AHEAD):
            given.keep((number, [number]))
        self.assertLess(len(given), 2 * revive._AHEAD)
        self.assertLessEqual(set(iterator._task_info), set(given))
        self.assertEqual(came + list(iterator), list(range(COUNT)))
        iterator.close()

    def test_what_the_trial_refused_is_torchs(self):
        for why, unrevived in (("batches were lost", ""), (None, "batches were lost")):
            iterator, _ = self.start_untried()
            self.torch.waits, self.torch.why, self.torch.unrevived = why, why, unrevived
            self.assertFalse(revive.tried(iterator, self.torch))
            with self.assertRaisesRegex(RuntimeError, "is killed by signal|exited unexpectedly"):
                os.kill(iterator._workers[0].pid, signal.SIGKILL)
                for _ in iterator:
                    time.sleep(0.001)
            self.assertEqual((self.revived(), self.errors), ([], []))
            self.torch.why, self.torch.unrevived = None, ""


class Ends(Case):
    def test_third_death_over_one_batch_is_torchs(self):
        iterator, came = self.start(kind="poison"), []
        with self.assertRaisesRegex(RuntimeError, r"DataLoader worker \(pid"):
            for index in iterator:
                came.append(index)
        self.assertIn(len(came), range(24, 31))  # others may not have been sent
        self.assertEqual(came, list(range(len(came))))
        self.assertIn(len(self.revived()), range(2, 9))  # all are, where a lock seems to be held

    def test_a_death_that_is_no_oom_kill_is_torchs(self):
        revive.oom.kills, kept = lambda path: 7, revive.oom.kills
        try:
            iterator = self.start(which=1)
            next(iterator)
            with self.assertRaisesRegex(RuntimeError, "is killed by signal|exited unexpectedly"):
                os.kill(iterator._workers[0].pid, signal.SIGKILL)
                for _ in iterator:
                    time.sleep(0.001)
            self.assertEqual(self.revived(), [])
        finally:
            revive.oom.kills = kept

    def test_an_oom_kill_is_met(self):
        kills, kept = [7], revive.oom.kills
        revive.oom.kills = lambda path: kills[0]
        try:
            iterator, came = self.start(which=1), []
            for index in iterator:
                came.append(index)
                if index == 20:
                    kills[0] += 1
                    os.kill(iterator._workers[1].pid, signal.SIGKILL)
            self.assertEqual(came, list(range(COUNT)))
            self.assertIn("the kernel counts an OOM kill", self.revived()[0]["why"])
            iterator.close()
        finally:
            revive.oom.kills = kept

    def test_an_oom_kill_is_met_once_in_all_loaders(self):
        kills, kept, revive.oom._explains = [7], revive.oom.kills, {}
        revive.oom.kills = lambda path: kills[0]
        try:
            first, second = self.start(which=1), self.start(which=1)
            next(second)
            kills[0] += 1
            os.kill(first._workers[1].pid, signal.SIGKILL)
            self.assertEqual(list(first), list(range(COUNT)))
            self.assertEqual(len(self.revived()), 1)
            with self.assertRaisesRegex(RuntimeError, "is killed by signal|exited unexpectedly"):
                os.kill(second._workers[1].pid, signal.SIGKILL)
                for _ in second:
                    pass
            self.assertEqual(len(self.revived()), 1)
        finally:
            revive.oom.kills = kept

    def test_a_failure_of_ours_is_torchs_error(self):
        iterator = self.start()
        next(iterator)
        revival = iterator.__dict__["_rsswarden_revive"]
        revival._replace = revival._again = hook.fails  # all are started again where a lock seems to be held
        with self.assertRaisesRegex(RuntimeError, "exited unexpectedly"):
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
            for _ in iterator:
                time.sleep(0.001)
        self.assertTrue(self.errors)

    def test_a_lock_of_the_dead_does_not_hold_up_the_end(self):
        iterator = self.start()
        next(iterator)
        iterator._workers_done_event._cond._lock.acquire()  # as a worker that dies within is_set
        iterator._rsswarden_revive.over = iterator._rsswarden_revive.ended = True
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        iterator._workers[0].join()
        began = time.monotonic()
        iterator.close()
        self.assertLess(time.monotonic() - began, 5)

    def test_a_held_lock_has_all_restarted(self):
        iterator, came = self.start(), []
        iterator.patience = iterator._timeout = revive._STUCK / 4  # torch looks for the dead in between
        for index in iterator:
            came.append(index)
            if index == 20:
                iterator._worker_result_queue._wlock.acquire()  # as a worker that dies as it begins to write
                os.kill(iterator._workers[1].pid, signal.SIGKILL)
        self.assertEqual((came, self.errors), (list(range(COUNT)), []))
        self.assertEqual(sum(s["what"] == "revived" for s in self.side.said), 3)
        iterator.close()

    def test_torch_is_left_to_look_at_its_pin_thread_and_at_its_timeout(self):
        iterator = self.start(pin=True)
        life = iterator._rsswarden_revive
        self.assertEqual(list(iterator), list(range(COUNT)))
        iterator._timeout = 0.01
        self.assertRaises(queue.Empty, life.get, timeout=0.01)
        iterator._timeout = 0
        self.assertTrue(life._goes_on())
        self.assertRaises(queue.Empty, life.get, block=False)
        iterator._pin_done.set()
        iterator._worker_result_queue.put((None, None))
        iterator._pin_memory_thread.join()
        with self.assertRaises(queue.Empty):
            while life.get(timeout=0.01) == (None, None):
                pass
        iterator.close()

    def test_a_death_between_two_epochs_and_one_as_it_begins(self):
        iterator = self.start()
        self.assertEqual(list(iterator), list(range(COUNT)))
        os.kill(iterator._workers[1].pid, signal.SIGKILL)
        iterator._workers[1].join()
        iterator._reset(False)
        self.assertEqual((list(iterator), self.errors), (list(range(COUNT)), []))
        iterator.close()

    def test_a_death_as_an_epoch_begins_while_another_worker_drains(self):
        iterator = self.start()
        self.assertEqual(list(iterator), list(range(COUNT)))
        recycler, old = iterator._rsswarden, iterator._workers[0]
        recycler.task = recycle.Task(1, 0, old, "drain")
        recycler.task.told, recycler.task.old_queue, iterator._workers_status[0] = 1.0, iterator._index_queues[0], False
        for process in (old, iterator._workers[1]):
            process.kill()
            process.join()
        epoch.settle(recycler, iterator)
        iterator._reset(False)
        self.assertEqual((recycler.task, iterator._num_workers, len({w.pid for w in iterator._workers} - {old.pid})), (None, 3, 3))
        self.assertEqual((list(iterator), self.errors), (list(range(COUNT)), []))
        iterator.close()

    def test_nothing_keeps_the_iterator_or_its_queue(self):
        iterator = self.start()
        list(iterator)
        iterator.close()
        kept = weakref.ref(iterator), weakref.ref(iterator._worker_result_queue)
        gc.disable()
        try:
            self.iterator = iterator = None
            self.assertEqual([k() for k in kept], [None, None])
        finally:
            gc.enable()


if __name__ == "__main__":
    unittest.main()
