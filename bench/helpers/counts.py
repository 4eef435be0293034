"""Counts by psutil what the processes of a tree have: mappings by
memory_maps(grouped=False), the only way to them that it has, which reads smaps;
descriptors by num_fds.

    counts.py PID maps|fds   answers each line "N PAUSE_US" as statm.c does, with
                             processor time
"""
import sys
import time

import psutil

import seed


def main():
    root = psutil.Process(int(sys.argv[1]))
    procs = [root] + root.children(recursive=True)

    def maps():
        return sum(len(p.memory_maps(grouped=False)) for p in procs)

    def fds():
        return sum(p.num_fds() for p in procs)

    seed.answer(maps if sys.argv[2] == "maps" else fds, time.process_time_ns)


if __name__ == "__main__":
    main()
