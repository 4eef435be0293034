def _set_worker_pids(*a): pass
def _remove_worker_pids(*a): pass
