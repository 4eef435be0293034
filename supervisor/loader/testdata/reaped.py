# A worker that something else has reaped: what birth says of its end.
import os
import types

import hookonly
from _rsswarden import birth

child = os.fork()
if not child: os._exit(0)
os.wait()
class Process:
    pid, exitcode = child, None
    def __init__(self, method, says): self._popen, self.says = types.SimpleNamespace(method=method), says
    def is_alive(self): return self.exitcode is None
    def join(self, timeout): self.exitcode = self.says
for method, says in ("forkserver", 7), ("forkserver", None), ("fork", None):
    process = Process(method, says)
    print(birth.ended(process), birth.unreported(process), birth.end(process, 0), birth.outcome(process, 0))
