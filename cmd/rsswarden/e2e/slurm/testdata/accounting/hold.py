"""hold.py NAME ANON_MB FILE: holds so much memory of its own and maps FILE, in
two processes; writes the file NAME when it is there, and sleeps."""
import mmap
import os
import sys
import time

name, anon, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def map_all():
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    sum(m[i] for i in range(0, len(m), 4096))
    return m


ready, done = os.pipe()
if os.fork() == 0:
    keep = map_all()
    os.write(done, b"1")
    time.sleep(60)
    os._exit(0)
keep = map_all(), b"x" * (anon << 20)
os.read(ready, 1)
open(name + ".new", "w").close()
os.rename(name + ".new", name)
time.sleep(60)
