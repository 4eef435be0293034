# Files that a forked worker inherits: which are opened again.
import os, sys

import hookonly
from _rsswarden import offsets
folder = sys.argv[1]
log = open(folder + "/log", "w+b", buffering=0)
log.write(b"before\n")
read = open(folder + "/log", "rb", buffering=0)
read.seek(3)
place = os.open(folder + "/log", os.O_PATH)
found = offsets.positions()
print(found == {read.fileno(): 3})
pid = os.fork()
if not pid:
    offsets.reopen(found)
    log.write(b"child\n")
    read.read()
    os._exit(0)
os.waitpid(pid, 0)
log.write(b"parent\n")
print(read.tell(), open(folder + "/log").read().split())
