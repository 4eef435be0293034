"""The worker's side: tasks are (number, (index, snapshot)), results are (number, (data, worker id, delta))."""
import dataclasses
import queue
import random
import typing

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind, _utils
from torch.utils.data._utils.worker import ManagerWatchdog, WorkerInfo, _IterableDatasetStopIteration, _ResumeIteration

_WORKER_ID, _FETCHER_STATE, _FETCHER_ENDED = "worker_id", "fetcher_state", "fetcher_ended"
_DATASET_STATE, _DATASET_ITER_STATE = "dataset_state", "dataset_iter_state"


@typing.runtime_checkable
class Stateful(typing.Protocol):
    def state_dict(self):
        ...

    def load_state_dict(self, state_dict):
        ...


@dataclasses.dataclass(frozen=True)
class _AckStartup:
    worker_id: int
    initial_state: object
    is_delta: bool = False


class _IncrementalState:
    """The last state of one thing, with its keys flat; sent as what changed."""

    def __init__(self, state):
        self.flat_state = self._flat(state)

    @staticmethod
    def _flat(state):
        return {(key,): value for key, value in state.items()} if isinstance(state, dict) and state else {(): state}

    def generate_delta(self, state):
        old, self.flat_state = self.flat_state, self._flat(state)
        return {key: value for key, value in self.flat_state.items() if not self._equal(old, key, value)}

    @staticmethod
    def _equal(old, key, value):
        try:
            return key in old and bool(old[key] == value)
        except Exception:
            return False

    def apply_delta(self, delta):
        self.flat_state.update(delta)
        if len(self.flat_state) > 1:
            self.flat_state.pop((), None)

    def get_state(self):
        return self.flat_state[()] if () in self.flat_state else {key[0]: value for key, value in self.flat_state.items()}


class _IncrementalWorkerState:
    def __init__(self, state):
        state = state or {}
        fetcher = state.get(_FETCHER_STATE) or {}
        self._worker_id, self._fetcher_ended = state.get(_WORKER_ID), fetcher.get(_FETCHER_ENDED)
        self._incr_dataset_state = _IncrementalState(state.get(_DATASET_STATE))
        self._incr_fetcher_iter_state = _IncrementalState(fetcher.get(_DATASET_ITER_STATE))

    def generate_delta(self, state):
        delta = dict(state)
        if delta[_DATASET_STATE] is not None:
            delta[_DATASET_STATE] = self._incr_dataset_state.generate_delta(delta[_DATASET_STATE])
        fetcher = delta[_FETCHER_STATE]
        if fetcher is not None and fetcher[_DATASET_ITER_STATE] is not None:
            changed = self._incr_fetcher_iter_state.generate_delta(fetcher[_DATASET_ITER_STATE])
            delta[_FETCHER_STATE] = {_FETCHER_ENDED: fetcher[_FETCHER_ENDED], _DATASET_ITER_STATE: changed}
        return delta

    def apply_delta(self, delta):
        self._worker_id = delta[_WORKER_ID]
        if delta[_DATASET_STATE] is not None:
            self._incr_dataset_state.apply_delta(delta[_DATASET_STATE])
        fetcher = delta[_FETCHER_STATE]
        if fetcher is not None:
            self._fetcher_ended = fetcher[_FETCHER_ENDED]
            if fetcher[_DATASET_ITER_STATE] is not None:
                self._incr_fetcher_iter_state.apply_delta(fetcher[_DATASET_ITER_STATE])

    def get_state(self):
        fetcher = None
        if self._fetcher_ended is not None:
            fetcher = {_FETCHER_ENDED: self._fetcher_ended, _DATASET_ITER_STATE: self._incr_fetcher_iter_state.get_state()}
        return {_WORKER_ID: self._worker_id, _DATASET_STATE: self._incr_dataset_state.get_state(), _FETCHER_STATE: fetcher}


def state_of(thing):
    return thing.state_dict() if isinstance(thing, Stateful) else None


def _make_state_dict(worker_id, dataset_kind, fetcher, dataset):
    state = {_WORKER_ID: worker_id, _FETCHER_STATE: None, _DATASET_STATE: None}
    if dataset_kind == _DatasetKind.Iterable:
        state[_FETCHER_STATE] = {_DATASET_ITER_STATE: state_of(fetcher.dataset_iter), _FETCHER_ENDED: fetcher.ended}
    if dataset_kind == _DatasetKind.Map or fetcher.dataset_iter is not dataset:
        state[_DATASET_STATE] = state_of(dataset)
    return state


def _worker_loop(dataset_kind, dataset, index_queue, data_queue, done_event, auto_collation, collate_fn, drop_last, base_seed,
                 init_fn, worker_id, num_workers, persistent_workers, shared_seed, worker_state):
    try:
        _utils.signal_handling._set_worker_signal_handlers()
        torch.set_num_threads(1)
        random.seed(base_seed + worker_id)
        torch.manual_seed(base_seed + worker_id)
        _utils.worker._worker_info = WorkerInfo(id=worker_id, num_workers=num_workers, seed=base_seed + worker_id, dataset=dataset)
        failed, incremental, initial = None, _IncrementalWorkerState(worker_state), None

        def fetcher_of():
            return _DatasetKind.create_fetcher(dataset_kind, dataset, auto_collation, collate_fn, drop_last)

        try:
            if init_fn is not None:
                init_fn(worker_id)
            if worker_state is not None and worker_state[_DATASET_STATE] is not None and isinstance(dataset, Stateful):
                dataset.load_state_dict(worker_state[_DATASET_STATE])
            fetcher = fetcher_of()
            if worker_state is not None and worker_state[_FETCHER_STATE] is not None:
                place = worker_state[_FETCHER_STATE][_DATASET_ITER_STATE]
                if place is not None and isinstance(fetcher.dataset_iter, Stateful):
                    fetcher.dataset_iter.load_state_dict(place)
            state = _make_state_dict(worker_id, dataset_kind, fetcher, dataset)
            if worker_state is None:
                incremental, initial = _IncrementalWorkerState(state), state
            else:
                initial = incremental.generate_delta(state)
        except Exception:
            failed = ExceptionWrapper(where="in DataLoader worker process %d" % worker_id)
        ended, watchdog = False, ManagerWatchdog()
        while watchdog.is_alive():
            try:
                task = index_queue.get(timeout=_utils.MP_STATUS_CHECK_INTERVAL)
            except queue.Empty:
                continue
            if isinstance(task, _AckStartup):
                data_queue.put((task, _AckStartup(worker_id, failed or initial, worker_state is not None)))
                continue
            if isinstance(task, _ResumeIteration):
                ended, fetcher = False, fetcher_of()
                state = _make_state_dict(worker_id, dataset_kind, fetcher, dataset)
                incremental = _IncrementalWorkerState(state)
                data_queue.put((task, _AckStartup(worker_id, state)))
                continue
            if task is None:
                break
            if done_event.is_set() or ended:
                continue
            number, (index, snapshot) = task
            delta = None
            try:
                try:
                    data = fetcher.fetch(index)
                except StopIteration:
                    data, ended = _IterableDatasetStopIteration(worker_id), True
                if snapshot or ended:
                    delta = incremental.generate_delta(_make_state_dict(worker_id, dataset_kind, fetcher, dataset))
            except Exception:
                data = ExceptionWrapper(where="in DataLoader worker process %d" % worker_id)
            data_queue.put((number, (data, worker_id, delta)))
            del data, delta, task, index
    except KeyboardInterrupt:
        pass
    if done_event.is_set():
        data_queue.cancel_join_thread()
        data_queue.close()
