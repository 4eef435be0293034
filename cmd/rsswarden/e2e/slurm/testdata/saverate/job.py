#!/usr/bin/env python3
"""A PyTorch training that grows as a spec of package saveratetest says.

    python3 job.py SPEC DATA [--measure]

SPEC is the JSON of a saveratetest.Spec. DATA is a file of at least its size; it may
be sparse. The trainer takes the batches of a DataLoader and sleeps between them;
each worker does for each of the 16 records of a batch a 16th of what the spec has
a worker do for a batch. With "support": "none" it is to be run as python3 -I;
"trim" is a dataset whose workers cannot be replaced within an epoch.

With --measure it prints the greatest sums over its processes, of RSS, of PSS, and
of the PSS that is anonymous, which is what a cgroup is charged of them.
Exit status: 0 all steps were taken.
"""
import json
import mmap
import os
import random
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

RECORDS = 16  # of a batch
BLOCK = 2 << 20  # of the data file: what one fault may map
PAGE = mmap.PAGESIZE


def anonymous():
    """What of this process is anonymous, in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def ballast(size):
    """Anonymous memory that workers share after fork, page by page."""
    if size <= 0:
        return None
    heap = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    heap.madvise(mmap.MADV_NOHUGEPAGE)
    np.frombuffer(heap, np.uint8)[:] = 1
    return heap


class Grower:
    """What a worker does for a record. Each process starts with fresh state."""

    def __init__(self, spec, path, heap):
        self.spec, self.path, self.heap = spec, path, heap
        self.pid = None

    def begin(self):
        self.pid = os.getpid()
        self.kept, self.copied, self.read, self.mapped, self.touched = [], 0, 0, None, 0
        if self.spec["map"] or self.spec["cache"]:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self.spec["map"]:
            self.mapped = mmap.mmap(self.fd, self.spec["file"], mmap.MAP_SHARED, mmap.PROT_READ)
            self.blocks = list(range((self.spec["file"] + BLOCK - 1) // BLOCK))
            random.Random(self.pid).shuffle(self.blocks)

    def record(self):
        if self.pid != os.getpid():
            self.begin()
        spec = self.spec
        if spec["leak"]:
            self.kept.append(np.ones(spec["leak"] // RECORDS, np.uint8))
        if spec["copy"] and self.heap is not None:
            most = min(spec["copy_most"], len(self.heap))
            until = min(self.copied + spec["copy"] // RECORDS, most)
            for at in range(self.copied - self.copied % PAGE, until, PAGE):
                self.heap[at] = 2
            self.copied = until
        if spec["map"]:
            self.touch(spec["map"] // RECORDS)
        if spec["cache"]:
            # Read by one worker for the batch of all.
            self.read += len(os.pread(self.fd, spec["cache"] // RECORDS, self.read % (1 << 30)))

    def touch(self, size):
        """Faults so many bytes more in, block by block in an order of the worker's own."""
        until = min(self.touched + size, self.spec["file"])
        for at in range(self.touched - self.touched % PAGE, until, PAGE):
            block = self.blocks[at // BLOCK] * BLOCK + at % BLOCK
            if block < len(self.mapped):
                self.mapped[block]
        self.touched = until
        if until == self.spec["file"]:
            self.touched = 0  # what a trim has taken is mapped again


class Map(Dataset):
    def __init__(self, spec, grower):
        self.records, self.grower = spec["steps"] * RECORDS, grower

    def __len__(self):
        return self.records

    def __getitem__(self, i):
        self.grower.record()
        return i


class Stream(IterableDataset):
    """The same as a stream: its place is in the worker, which cannot be replaced."""

    def __init__(self, spec, grower):
        self.spec, self.grower = spec, grower

    def __iter__(self):
        me, workers = get_worker_info().id, self.spec["workers"]
        for step in range(me, self.spec["steps"], workers):
            for i in range(RECORDS):
                self.grower.record()
                yield step * RECORDS + i


def rollup(pid):
    """RSS, PSS and anonymous PSS of a process in bytes."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            fields = dict(line.split()[:2] for line in f if line.split()[0] in ("Rss:", "Pss:", "Pss_Anon:"))
        return [int(fields[k]) << 10 for k in ("Rss:", "Pss:", "Pss_Anon:")]
    except (OSError, KeyError):
        return [0, 0, 0]


def main():
    with open(sys.argv[1]) as f:
        spec = json.load(f)
    measure = "--measure" in sys.argv[3:]
    heap = ballast(spec["heap"] - anonymous())
    grower = Grower(spec, sys.argv[2], heap)
    dataset = Stream(spec, grower) if spec["support"] == "trim" else Map(spec, grower)
    loader = DataLoader(dataset, batch_size=RECORDS, num_workers=spec["workers"], prefetch_factor=2)
    kept, burst, peaks, seen, steps = [], None, [0, 0, 0], 0, 0
    iterator = iter(loader)
    for batch in iterator:
        seen += int(batch.sum())
        steps += 1
        if spec["grow"]:
            kept.append(np.ones(spec["grow"], np.uint8))
        if spec["burst"] and steps == spec["burst_at"]:
            burst = np.ones(spec["burst"], np.uint8)
        if steps == spec["burst_at"] + spec["burst_for"]:
            burst = None
        if measure and (steps % 20 == 0 or steps == spec["steps"] - 2 * spec["workers"]):
            sums = [sum(s) for s in zip(*(rollup(p) for p in [os.getpid()] + [w.pid for w in iterator._workers]))]
            peaks = [max(p) for p in zip(peaks, sums)]
        time.sleep(spec["step"] / 1e9)
    if measure:
        print("peaks rss=%d pss=%d anon=%d" % tuple(peaks))
    whole = spec["steps"] * RECORDS
    print("steps %d, each record once: %s" % (steps, seen == whole * (whole - 1) // 2))
    sys.exit(steps != spec["steps"] or seen != whole * (whole - 1) // 2)


if __name__ == "__main__":
    main()
