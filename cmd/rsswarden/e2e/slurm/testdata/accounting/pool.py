"""pool.py KIND UNITS SIZE_MB PAUSE_MS FILE: a pool of two workers that grow.

Each of UNITS units of work makes a worker SIZE_MB larger: in memory of its own
(anon), in pages of FILE that it has mapped (map), or in address space (virtual).
A worker that gets SIGTERM finishes its unit and ends; the parent starts another
in the place of one that has ended, and hands the unit out again. The checksum
at the end is the same however often that happens."""
import hashlib
import mmap
import signal
import subprocess
import sys
import time

WORKERS = 2
PRIVATE_ANONYMOUS_NORESERVE = 0x4022  # mmap has names for all three from 3.13 on
kind, units, size, pause, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]


def work():
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    stopped, keep, at = [], [], 0
    if kind == "map":
        with open(path, "rb") as f:
            data = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    while not stopped:
        line = sys.stdin.readline()
        if not line:
            break
        if kind == "anon":
            keep.append(b"x" * (size << 20))
        elif kind == "virtual":
            keep.append(mmap.mmap(-1, size << 20, flags=PRIVATE_ANONYMOUS_NORESERVE, prot=0))
        else:
            for i in range(at, min(at + (size << 20), len(data)), 4096):
                data[i]
            at += size << 20
        time.sleep(pause / 1000)
        print(hashlib.sha256(line.encode()).hexdigest(), flush=True)


def start():
    return subprocess.Popen([sys.executable, sys.argv[0]] + sys.argv[1:6] + ["worker"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lead():
    pool, ended, chain = [start() for _ in range(WORKERS)], 0, hashlib.sha256()
    for unit in range(0, units, WORKERS):
        answers = [""] * WORKERS
        while not all(answers):
            asked = [i for i in range(WORKERS) if not answers[i]]
            for i in asked:
                try:
                    pool[i].stdin.write("%d\n" % (unit + i))
                    pool[i].stdin.flush()
                except BrokenPipeError:
                    pass
            for i in asked:
                answers[i] = pool[i].stdout.readline()
                if not answers[i]:
                    pool[i].wait()
                    pool[i], ended = start(), ended + 1
                    if ended > units:
                        sys.exit("the workers end without an answer")
        chain.update("".join(answers).encode())
    print("%d workers ended early" % ended)
    print("checksum", chain.hexdigest())


work() if sys.argv[6:] == ["worker"] else lead()
