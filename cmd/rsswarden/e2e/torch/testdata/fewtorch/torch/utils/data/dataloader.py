import itertools
import queue

from torch import multiprocessing
from torch.utils.data import _utils


class DataLoader:
    def __init__(self, dataset, batch_size, num_workers):
        self.dataset, self.batch_size, self.num_workers = dataset, batch_size, num_workers
        self.multiprocessing_context, self.persistent_workers = multiprocessing.get_context("fork"), False

    def __iter__(self):
        return _MultiProcessingDataLoaderIter(self)


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._dataset, self._dataset_kind, self._num_workers = loader.dataset, 0, loader.num_workers
        self._base_seed, self._pin_memory, self._persistent_workers = 1, False, False
        self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        size = loader.batch_size
        self._indices = iter([range(i, i + size) for i in range(0, len(loader.dataset), size)])

    def __next__(self):
        return self._next_data()


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        self._workers, self._index_queues, self._worker_pids_set, self._shutdown = [], [], False, False
        super().__init__(loader)
        context = loader.multiprocessing_context
        self._worker_result_queue = context.Queue()
        for i in range(self._num_workers):
            index_queue = context.Queue()
            w = context.Process(
                target=_utils.worker._worker_loop,
                args=(self._dataset, index_queue, self._worker_result_queue, self._base_seed, i))
            w.daemon = True
            w.start()
            self._workers.append(w)
            self._index_queues.append(index_queue)
        for _ in range(2 * self._num_workers):
            self._try_put_index()

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._task_info, self._send_idx, self._rcvd_idx = {}, 0, 0
        self._workers_status = [True] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))

    def _try_put_index(self):
        index = next(self._indices, None)
        if index is None:
            return
        worker = next(self._worker_queue_idx_cycle)
        self._index_queues[worker].put((self._send_idx, list(index)))
        self._task_info[self._send_idx] = (worker,)
        self._send_idx += 1

    def _try_get_data(self, timeout=5.0):
        try:
            return True, self._worker_result_queue.get(timeout=timeout)
        except queue.Empty:
            return False, None

    def _get_data(self):
        while True:
            success, data = self._try_get_data()
            if success:
                return data

    def _next_data(self):
        while self._rcvd_idx in self._task_info:
            if len(self._task_info[self._rcvd_idx]) == 2:
                return self._process_data(self._task_info.pop(self._rcvd_idx)[1])
            number, data = self._get_data()
            self._task_info[number] += (data,)
        self._shutdown_workers()
        raise StopIteration

    def _process_data(self, data):
        self._rcvd_idx += 1
        self._try_put_index()
        return data

    def _mark_worker_as_unavailable(self, worker_id):
        self._workers_status[worker_id] = False

    def _shutdown_workers(self):
        if not self._shutdown:
            self._shutdown = True
            for q in self._index_queues:
                q.put(None)
            for w in self._workers:
                w.join()

    def __del__(self):
        self._shutdown_workers()
