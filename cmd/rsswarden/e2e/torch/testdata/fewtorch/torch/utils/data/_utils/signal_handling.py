def _set_worker_pids(key, pids):
    pass


def _remove_worker_pids(key):
    pass


def _set_SIGCHLD_handler():
    pass
