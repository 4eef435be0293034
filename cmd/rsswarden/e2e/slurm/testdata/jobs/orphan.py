"""Leaves an orphan of 600 MB behind, forked twice and in a session of its own. slurmstepd, summing
by parent PID, does not count it."""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        keep = b"x" * (600 << 20)
        time.sleep(7)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(6)
print("parent ends")
