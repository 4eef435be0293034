"""A trainer for the tests whose heap holds what a collection gives back.

Each process that is to hold something does so at its first record: free blocks
between live ones, or reference cycles around arrays. Python's own collector is
off, so nothing else gives them back.
"""
import argparse
import gc
import json
import os
import sys

import numpy
import torch

torch.set_num_threads(1)
FORK = "fork" if sys.version_info >= (3, 14) else None  # Python 3.14 starts workers by forkserver, in seconds each
BLOCKS, BLOCK = 30000, 4000  # 114 MiB, of which a tenth lives on
ARRAYS, ARRAY = 6, 20 << 20  # 120 MiB in cycles


class Knot:
    def __init__(self, number):
        self.me = self
        self.array = numpy.full(ARRAY, number % 251, numpy.uint8)

    def __del__(self):
        if self.array[0] == 3:
            raise ValueError("a finalizer of the program")


def hold(case):
    """Returns what must be as it was, later."""
    if case == "fragments":
        blocks = [bytearray(b"%d" % i) + bytearray(BLOCK) for i in range(BLOCKS)]
        return blocks[::10]
    for number in range(ARRAYS):
        Knot(number)
    return []


def whole(kept):
    return all(int(block[:block.index(0)]) == 10 * i for i, block in enumerate(kept))


class Data(torch.utils.data.Dataset):
    def __init__(self, case):
        self.case, self.kept = case, None

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if self.case and self.kept is None:
            self.kept = hold(self.case)
        return index, self.kept is None or index % 50 or whole(self.kept), gc.isenabled()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--size")
    p.add_argument("--case", required=True, choices=("fragments", "cycles"))
    p.add_argument("--where", required=True, choices=("worker", "trainer"))
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--until", required=True)
    a = p.parse_args()
    gc.disable()
    before = gc.get_threshold(), gc.get_freeze_count()
    kept = hold(a.case) if a.where == "trainer" else []
    loader = torch.utils.data.DataLoader(Data(a.case if a.where == "worker" else ""), batch_size=4,
                                         num_workers=a.workers, persistent_workers=a.workers > 0,
                                         multiprocessing_context=FORK if a.workers else None)
    wrong = epoch = 0
    while not os.path.exists(a.until):
        records = []
        for batch, whole_there, enabled in loader:
            records += batch.tolist()
            wrong += int((whole_there == 0).sum()) + int(enabled.sum())
        wrong += records != list(range(400))
        epoch += 1
        print(json.dumps({"what": "epoch", "epoch": epoch}), flush=True)
    wrong += gc.isenabled() or (gc.get_threshold(), gc.get_freeze_count()) != before or not whole(kept)
    print(json.dumps({"what": "result", "wrong": wrong, "epochs": epoch}), flush=True)


if __name__ == "__main__":
    main()
