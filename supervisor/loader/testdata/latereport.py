"""Has the fork server that imports it report half a second late how a worker ended, as one on a busy machine may."""
import time
from multiprocessing import forkserver

_write, _begun = forkserver.write_signed, set()


def write_signed(fd, number):
    """Writes a worker's PID to a descriptor, and to the same one its status."""
    if fd in _begun:
        time.sleep(0.5)
    _begun.symmetric_difference_update([fd])
    _write(fd, number)


forkserver.write_signed = write_signed
