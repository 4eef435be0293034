"""A trainer for the tests over iterable datasets; prints a checksum over the order of the records and over main's draws."""
import argparse
import hashlib
import json
import os
import random
import sys
import warnings

warnings.filterwarnings("ignore")

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)
FORK = "fork" if sys.version_info >= (3, 14) else None  # Python 3.14 starts workers by forkserver, in seconds each
COUNT = 600


def drawn(index):
    return index, random.getrandbits(60) ^ int(torch.randint(1 << 60, ())), os.getpid()


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id, COUNT, info.num_workers):
            yield drawn(index)


class Counting(Shards):
    def __init__(self):
        self.epochs = 0

    def __iter__(self):
        self.epochs += 1
        return super().__iter__()


class Own(Shards):
    def __iter__(self):
        self.inner = super().__iter__()
        return self

    def __next__(self):
        return next(self.inner)


class Keeping(DataLoader):
    """As wrappers do that never let their workers rest: one iterator for life."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.iterator = super().__iter__()

    def __iter__(self):
        return self.iterator


class Forever(Shards):
    def __iter__(self):
        while True:
            yield from super().__iter__()


def pipe():
    from torch.utils.data.datapipes.iter import IterableWrapper

    return IterableWrapper(range(COUNT)).shuffle().sharding_filter().map(drawn)


def refuse(after, times, error):
    fork, calls = os.fork, [0]

    def refusing():
        calls[0] += 1
        if after < calls[0] <= after + times:
            raise error
        return fork()

    os.fork = refusing


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--size")
    p.add_argument("--dataset", default="shards", choices=("shards", "counting", "own", "pipe", "forever"))
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--plain", action="store_true", help="without persistent workers")
    p.add_argument("--keeping", action="store_true")
    p.add_argument("--generator", action="store_true")
    p.add_argument("--break-at", type=int, default=0)
    p.add_argument("--context", default=FORK)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--until", default="")
    p.add_argument("--refuse-fork", type=int, nargs=2)
    p.add_argument("--refuse-oddly", action="store_true", help="with another error than the system's")
    p.add_argument("--unpicklable", action="store_true", help="what the dataset holds after an epoch cannot be pickled")
    a = p.parse_args()
    if a.refuse_fork:
        refuse(*a.refuse_fork, RuntimeError("can't start new thread") if a.refuse_oddly else
               BlockingIOError(11, "Resource temporarily unavailable"))
    torch.manual_seed(11)
    random.seed(12)
    generator = torch.Generator().manual_seed(5) if a.generator else None
    dataset = {"shards": Shards, "counting": Counting, "own": Own, "pipe": pipe, "forever": Forever}[a.dataset]()
    loader = (Keeping if a.keeping else DataLoader)(
        dataset, batch_size=8, num_workers=a.workers, persistent_workers=not a.plain, generator=generator,
        multiprocessing_context=a.context)
    if a.dataset == "pipe":
        torch.utils.data.graph_settings.apply_shuffle_settings(dataset, True)
    total, mains, draws, pids = hashlib.sha256(), hashlib.sha256(), [], set()
    wrong = epoch = 0
    first = None
    while epoch < a.epochs or (a.until and not os.path.exists(a.until)):
        order = []
        batches = iter(loader)
        first = batches if first is None else first
        wrong += not a.plain and batches is not first  # torch's is one object for all epochs
        for number, (records, random_draws, who) in enumerate(batches, 1):
            order += records.tolist()
            draws += random_draws.tolist()
            pids |= set(who.tolist())
            if number == (a.break_at or (COUNT // 8 if a.keeping else 0)):
                break
        if not (a.break_at or a.keeping):
            wrong += sorted(order) != list(range(COUNT))
        wrong += len(set(order)) != len(order)
        if epoch < a.epochs:
            total.update(repr(order).encode())
            mains.update(repr((int(torch.randint(1 << 60, (), generator=generator)), int(torch.randint(1 << 60, ())),
                               random.getrandbits(60))).encode())
        epoch += 1
        if a.unpicklable:
            dataset.handle = open(os.devnull)
        print(json.dumps({"what": "epoch", "epoch": epoch}), flush=True)
    print(json.dumps({"what": "result", "checksum": total.hexdigest(), "main": mains.hexdigest(), "wrong": wrong,
                      "epochs": epoch, "repeated": len(draws) - len(set(draws)), "workers": len(pids)}), flush=True)


if __name__ == "__main__":
    main()
