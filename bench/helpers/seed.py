"""Sums the RSS of a tree by psutil, as rsswarden's users did before: process
and children(recursive=True), memory_info().rss of each.

    seed.py PID          answers each line "N PAUSE_US" as statm.c does
    seed.py PID SECONDS  sums every so many seconds until standard input ends,
                         and then prints the last sum
"""
import select
import sys
import time

import psutil


def rss_usage(pid):
    proc = psutil.Process(pid)
    rss = proc.memory_info().rss
    for child in proc.children(recursive=True):
        try:
            rss += child.memory_info().rss
        except psutil.NoSuchProcess:
            pass  # ended meanwhile; where the seeds die of it, we go on
    return rss


def answer(ask, clock):
    """Answers lines as statm.c does, with what ask returns."""
    for line in iter(sys.stdin.readline, ""):
        n, pause = map(int, line.split())
        took, got = [], 0
        for _ in range(n):
            if pause:
                time.sleep(pause / 1e6)
            began = clock()
            got = ask()
            took.append(clock() - began)
        print(got, *took, flush=True)


def loop(pid, seconds):
    rss = 0
    while not select.select([sys.stdin], [], [], seconds)[0]:
        rss = rss_usage(pid)
    print(rss, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        loop(int(sys.argv[1]), float(sys.argv[2]))
    else:
        answer(lambda: rss_usage(int(sys.argv[1])), time.perf_counter_ns)
