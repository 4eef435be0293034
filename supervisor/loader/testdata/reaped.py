# A worker that something else has reaped: what birth says of its end.
import os

import hookonly
from _rsswarden import birth

child = os.fork()
if not child: os._exit(0)
os.wait()
class Process:
    pid, exitcode = child, None
    def __init__(self, says): self.says = says
    def is_alive(self): return self.exitcode is None
    def join(self, timeout): self.exitcode = self.says
for says in (0, 7, None):
    process = Process(says)
    print(birth.ended(process), process.exitcode, birth.outcome(process, 0))
