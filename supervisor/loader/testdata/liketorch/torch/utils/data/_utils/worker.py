_worker_info = None
def _worker_loop(dataset_kind): pass
