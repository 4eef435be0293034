"""A trainer that needs 500 MB in the end: 5 MB more with each step. It counts its
steps, and writes a checkpoint of that when USR1 asks for one.

    train.py CHECKPOINT go-on|exit
"""
import os
import signal
import sys
import time

path, then = sys.argv[1:]
STEPS, STEP_BYTES = 95, 5 << 20
asked = False


def ask(*_):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, ask)
step = 0
if os.path.exists(path):
    with open(path) as f:
        step = int(f.read())
print("turn", os.environ.get("SLURM_RESTART_COUNT", "0"), "from step", step, flush=True)
held = [b"x" * STEP_BYTES for _ in range(step)]
while step < STEPS:
    held.append(b"x" * STEP_BYTES)
    step += 1
    time.sleep(0.1)
    if asked:
        with open(path + ".new", "w") as f:
            f.write(str(step))
        os.rename(path + ".new", path)
        print("checkpoint at step", step, flush=True)
        if then == "exit":
            sys.exit(99)
        asked = False
        time.sleep(2)
print("done after step", step, flush=True)
