from torch.utils.data._utils import fetch

_worker_info = None


def _worker_loop(dataset, index_queue, data_queue, base_seed, worker_id):
    global _worker_info
    _worker_info = worker_id
    fetcher = fetch._MapDatasetFetcher(dataset)
    while True:
        task = index_queue.get()
        if task is None:
            return
        number, index = task
        data_queue.put((number, fetcher.fetch(index)))
