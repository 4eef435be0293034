"""The trainer's side. It keeps a snapshot of each worker and brings it up to date as batches are handed out."""
import collections
import itertools
import queue
import threading

import torch
import torch.multiprocessing as multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from .worker import (_DATASET_ITER_STATE, _DATASET_STATE, _FETCHER_ENDED, _FETCHER_STATE, Stateful, _AckStartup,
                     _IncrementalWorkerState, _worker_loop)


class _Shuffled(torch.utils.data.Sampler):
    """A random order that can be drawn again, for a loader that resumes."""

    def __init__(self, size, generator):
        self._size, self._generator, self.order, self.skip = size, generator, None, 0

    def __len__(self):
        return self._size

    def __iter__(self):
        if not self.skip:
            self.order = torch.randperm(self._size, generator=self._generator).tolist()
        skip, self.skip = self.skip, 0
        return iter(self.order[skip:])


class StatefulDataLoader(DataLoader):
    def __init__(self, dataset, batch_size=1, shuffle=None, snapshot_every_n_steps=1, generator=None, prefetch_factor=2, **options):
        if shuffle:
            options["sampler"] = _Shuffled(len(dataset), generator)
        super().__init__(dataset, batch_size, generator=generator, prefetch_factor=prefetch_factor, **options)
        self.snapshot_every_n_steps, self._resumed = snapshot_every_n_steps, None

    def _get_iterator(self):
        state, self._resumed = self._resumed, None
        return _StatefulMultiProcessingDataLoaderIter(self, state)

    def __iter__(self):
        if self.persistent_workers and self._iterator is not None:
            self._iterator._reset(self)
        else:
            self._iterator = self._get_iterator()
        return self._iterator

    def state_dict(self):
        return self._iterator.state_dict()

    def load_state_dict(self, state):
        self._iterator, self._resumed = None, state


class _StatefulMultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader, resumed):
        super().__init__(loader)
        self._loader_sampler, self._batch = loader.sampler, loader.batch_size
        self._snapshot_interval, self._prefetch_factor = loader.snapshot_every_n_steps, loader.prefetch_factor
        self._in_order = getattr(loader, "in_order", True)
        context = loader.multiprocessing_context or multiprocessing
        self._worker_init_fn = loader.worker_init_fn
        self._worker_result_queue, self._workers_done_event = context.Queue(), context.Event()
        self._worker_pids_set, self._shutdown = False, False
        self._index_queues, self._workers = [], []
        worker_states = {self._worker_key(i): None for i in range(self._num_workers)}
        if resumed is not None:
            worker_states.update(resumed["snapshot"]["workers"])
            self._base_seed = resumed["snapshot"]["base_seed"]
        for i in range(self._num_workers):
            index_queue = context.Queue()
            index_queue.cancel_join_thread()
            w = context.Process(
                target=_worker_loop,
                args=(self._dataset_kind, self._dataset, index_queue, self._worker_result_queue, self._workers_done_event,
                      self._auto_collation, self._collate_fn, self._drop_last, self._base_seed, self._worker_init_fn, i,
                      self._num_workers, self._persistent_workers, self._shared_seed, worker_states[self._worker_key(i)]))
            w.daemon = True
            w.start()
            self._index_queues.append(index_queue)
            self._workers.append(w)
        self._data_queue = self._worker_result_queue
        if self._pin_memory:
            self._data_queue, self._pin_memory_thread_done_event = queue.Queue(), threading.Event()
            self._pin_memory_thread = threading.Thread(target=_utils.pin_memory._pin_memory_loop, daemon=True, args=(
                self._worker_result_queue, self._data_queue, torch.cuda.current_device(), self._pin_memory_thread_done_event, None))
            self._pin_memory_thread.start()
        _utils.signal_handling._set_worker_pids(id(self), tuple(w.pid for w in self._workers))
        _utils.signal_handling._set_SIGCHLD_handler()
        self._worker_pids_set = True
        self._worker_snapshots = {key: _IncrementalWorkerState(state) for key, state in worker_states.items()}
        self._reset(loader, first_iter=True, prime_prefetch=resumed is None)
        if resumed is not None:
            self._resume(resumed)

    def _resume(self, resumed):
        self._snapshot = snapshot = resumed["snapshot"]
        if snapshot["order"] is not None:
            self._loader_sampler.order, self._loader_sampler.skip = snapshot["order"], snapshot["drawn"] * self._batch
            self._sampler_iter = iter(self._index_sampler)
        self._num_yielded, self._drawn = snapshot["step"], snapshot["drawn"]
        for _ in range(snapshot["last"] + 1):
            next(self._worker_queue_idx_cycle)
        for _ in range(self._prefetch_factor * self._num_workers):
            self._try_put_index()
        for _ in range(resumed["steps_since"]):
            next(self)

    def _reset(self, loader, first_iter=False, prime_prefetch=True):
        super()._reset(loader, first_iter)
        self._send_idx = self._rcvd_idx = self._tasks_outstanding = self._drawn = 0
        self._task_info, self._main_snapshots = {}, collections.deque()
        self._workers_status = [True] * self._num_workers
        self._workers_num_tasks = [0] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))
        for i in range(self._num_workers):
            self._index_queues[i].put(_AckStartup(i, None) if first_iter else _utils.worker._ResumeIteration(self._shared_seed))
        answers = 0
        while answers < self._num_workers:
            _, ack = self._get_data()
            if isinstance(ack, _AckStartup):
                if isinstance(ack.initial_state, ExceptionWrapper):
                    ack.initial_state.reraise()
                if ack.is_delta:
                    self._worker_snapshots[self._worker_key(ack.worker_id)].apply_delta(ack.initial_state)
                else:
                    self._worker_snapshots[self._worker_key(ack.worker_id)] = _IncrementalWorkerState(ack.initial_state)
                answers += 1
        self._last_yielded_worker_id = self._num_workers - 1
        self._take_snapshot(0, 0)
        if prime_prefetch:
            for _ in range(self._prefetch_factor * self._num_workers):
                self._try_put_index()

    def _take_snapshot(self, step, drawn):
        self._snapshot = {
            "step": step, "drawn": drawn, "last": self._last_yielded_worker_id, "base_seed": self._base_seed,
            "order": getattr(self._loader_sampler, "order", None),
            "workers": {key: state.get_state() for key, state in self._worker_snapshots.items()}}

    def state_dict(self):
        return {"snapshot": self._snapshot, "steps_since": self._num_yielded - self._snapshot["step"]}

    def _worker_key(self, worker_id):
        return "worker_%d" % worker_id

    def _try_get_data(self, timeout=_utils.MP_STATUS_CHECK_INTERVAL):
        try:
            return True, self._data_queue.get(timeout=timeout)
        except Exception as error:
            dead = [w.pid for k, w in enumerate(self._workers) if self._workers_status[k] and not w.is_alive()]
            if dead:
                raise RuntimeError("DataLoader worker (pid(s) %s) exited unexpectedly" % dead) from error
            if isinstance(error, queue.Empty):
                return False, None
            raise

    def _get_data(self):
        while True:
            success, data = self._try_get_data(self._timeout) if self._timeout > 0 else self._try_get_data()
            if success:
                return data
            if self._timeout > 0:
                raise RuntimeError("DataLoader timed out after %s seconds" % self._timeout)

    def _next_data(self):
        while True:
            while self._rcvd_idx < self._send_idx:
                info = self._task_info.get(self._rcvd_idx)
                if info and (len(info) == 2 or self._workers_status[info[0]]):
                    break
                self._task_info.pop(self._rcvd_idx, None)
                self._rcvd_idx += 1
            else:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            if len(self._task_info[self._rcvd_idx]) == 1:
                number, result = self._get_data()
                self._tasks_outstanding -= 1
                if isinstance(result[0], _utils.worker._IterableDatasetStopIteration):
                    if self._persistent_workers:
                        self._workers_status[result[1]] = False
                    else:
                        self._mark_worker_as_unavailable(result[1])
                    self._try_put_index()
                self._task_info[number] += (result,)
                if number != self._rcvd_idx:
                    continue
            data, worker_id, delta = self._task_info.pop(self._rcvd_idx)[1]
            self._rcvd_idx += 1
            if isinstance(data, _utils.worker._IterableDatasetStopIteration):
                self._worker_snapshots[self._worker_key(worker_id)].apply_delta(delta)
                continue
            return self._process_data(data, worker_id, delta)

    def _process_data(self, data, worker_id, delta):
        self._workers_num_tasks[worker_id] -= 1
        self._try_put_index()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        self._last_yielded_worker_id = worker_id
        if delta is not None:
            self._worker_snapshots[self._worker_key(worker_id)].apply_delta(delta)
        if self._snapshot_interval and (self._num_yielded + 1) % self._snapshot_interval == 0:
            drawn = 0
            while self._main_snapshots and self._main_snapshots[0][0] < self._rcvd_idx:
                drawn = self._main_snapshots.popleft()[1]
            self._take_snapshot(self._num_yielded + 1, drawn)
        return data

    def _try_put_index(self):
        try:
            index = self._next_index()
        except StopIteration:
            return
        self._drawn += 1
        for _ in range(self._num_workers):
            worker_id = next(self._worker_queue_idx_cycle)
            if self._workers_status[worker_id]:
                break
        else:
            return
        # Which batch this will be is known for a map data set; for an iterable one, at the earliest the next.
        snapshot = False
        if self._snapshot_interval:
            first = self._drawn if self._dataset_kind == _DatasetKind.Map else self._num_yielded + 1
            last = first + self._num_workers * (1 if self._dataset_kind == _DatasetKind.Map else 2 + self._prefetch_factor)
            snapshot = last // self._snapshot_interval > (first - 1) // self._snapshot_interval
        self._main_snapshots.append((self._send_idx, self._drawn))
        self._index_queues[worker_id].put((self._send_idx, (index, snapshot)))
        self._task_info[self._send_idx] = (worker_id,)
        self._workers_num_tasks[worker_id] += 1
        self._tasks_outstanding += 1
        self._send_idx += 1

    def _mark_worker_as_unavailable(self, worker_id, shutdown=False):
        self._index_queues[worker_id].put(None)
        self._workers_status[worker_id] = False

    def _shutdown_workers(self):
        if _utils is None or _utils.python_exit_status is not False or self._shutdown:
            return
        self._shutdown = True
        try:
            if hasattr(self, "_pin_memory_thread"):
                self._pin_memory_thread_done_event.set()
                self._worker_result_queue.put((None, None))
                self._pin_memory_thread.join()
            self._workers_done_event.set()
            for worker_id in range(len(self._workers)):
                if self._persistent_workers or self._workers_status[worker_id]:
                    self._mark_worker_as_unavailable(worker_id, shutdown=True)
            for w in self._workers:
                w.join(timeout=_utils.MP_STATUS_CHECK_INTERVAL)
            for index_queue in self._index_queues:
                index_queue.cancel_join_thread()
                index_queue.close()
        finally:
            if self._worker_pids_set:
                _utils.signal_handling._remove_worker_pids(id(self))
                self._worker_pids_set = False
            for w in self._workers:
                if w.is_alive():
                    w.terminate()

    def __del__(self):
        self._shutdown_workers()
