"""A trainer for the tests that reads all of a file through a mapping, and prints how much of it was ever mapped at once.

It can map as pyarrow does (MAP_PRIVATE, read-only), and load through a copy of
torch's iterator, as StatefulDataLoader is one.
"""
import argparse
import inspect
import json
import mmap
import os
import sys

import numpy
import torch
from torch.utils.data import DataLoader, IterableDataset, dataloader

torch.set_num_threads(1)
FORK = "fork" if sys.version_info >= (3, 14) else None  # Python 3.14 starts workers by forkserver, in seconds each


class Copied(DataLoader):
    def _get_iterator(self):
        names = dict(vars(dataloader))
        exec(inspect.getsource(dataloader._MultiProcessingDataLoaderIter), names)
        return names["_MultiProcessingDataLoaderIter"](self)


def shared():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[2]) * 4096


class Records(torch.utils.data.Dataset):
    def __init__(self, path, size, private):
        self.size, self.count = size, os.path.getsize(path) // size
        with open(path, "rb") as file:
            os.fsync(file.fileno())  # what is dirty is not dropped
            self.map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, prot=mmap.PROT_READ)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        raw = numpy.frombuffer(self.map[index * self.size:(index + 1) * self.size], numpy.uint8)
        return int(raw[:8].view(numpy.int64)[0]) == index, int(raw.sum(dtype=numpy.int64)), shared()


class Stream(IterableDataset):
    def __init__(self, records):
        self.records = records

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (self.records[index] for index in range(first, len(self.records), step))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--size", type=int)
    p.add_argument("--private", action="store_true")
    p.add_argument("--copy", action="store_true")
    p.add_argument("--stream", action="store_true")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--until", required=True)
    a = p.parse_args()
    records = Records(a.data, a.size, a.private)
    with open(a.data + ".sums", "rb") as file:
        sums = int(numpy.frombuffer(file.read(), numpy.uint64).sum())
    loader = (Copied if a.copy else DataLoader)(Stream(records) if a.stream else records, batch_size=16, num_workers=a.workers,
                                                multiprocessing_context=FORK if a.workers else None)
    wrong = epoch = most = late = 0
    while not os.path.exists(a.until):
        total, late = 0, 0
        for right, parts, mapped in loader:
            wrong += int((right == 0).sum())
            total += int(parts.sum())
            late = max(late, int(mapped.max()))
        wrong += total != sums
        most = max(most, late)
        epoch += 1
        print(json.dumps({"what": "epoch", "epoch": epoch}), flush=True)
    print(json.dumps({"what": "result", "wrong": wrong, "epochs": epoch, "mapped": most, "late": late}), flush=True)


if __name__ == "__main__":
    main()
