"""A trainer for the tests of StatefulDataLoader; prints a checksum over the records in their order.

TORCHDATA names a checkout of torchdata; without it the stand-in beside this file
is used. Each epoch has the records of the second (the first also draws the workers'
seed from the loader's generator). Checkpoints are taken, and each
is resumed by a loader of its own, which must give the rest of its epoch.
"""
import argparse
import hashlib
import json
import os
import random
import sys
import time
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, os.environ.get("TORCHDATA") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin"))

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

torch.set_num_threads(1)


class Counted(Dataset):
    """Counts, in each worker, what it was asked for; that is its state."""

    def __init__(self, count, fail):
        self.count, self.fail, self.asked = count, fail, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.asked += 1
        if index in self.fail:
            raise ValueError("record %d" % index)
        return index, self.asked

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


class Bare(Dataset):
    """A map data set without a state."""

    def __init__(self, count, fail):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index, index * 7


class Position:
    """Where a worker is in its part of the data: that, a sum and a generator of its own are its state."""

    def __init__(self, count, fail):
        info = get_worker_info()
        self.at, self.step, self.end, self.total, self.fail = info.id, info.num_workers, count, 0, fail
        self.end -= info.id * 24  # some end before others
        self.random = random.Random(info.id)

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.end:
            raise StopIteration
        at, self.at, self.total = self.at, self.at + self.step, self.total + self.at
        if at in self.fail:
            raise ValueError("record %d" % at)
        return at, self.total ^ self.random.getrandbits(40)

    def state_dict(self):
        return {"at": self.at, "total": self.total, "random": self.random.getstate()}

    def load_state_dict(self, state):
        self.at, self.total = state["at"], state["total"]
        self.random.setstate(state["random"])


class Stream(IterableDataset):
    """Its iterator has the state."""

    kind = Position

    def __init__(self, count, fail):
        self.count, self.fail = count, fail

    def __iter__(self):
        return self.kind(self.count, self.fail)


class Shards(IterableDataset):
    """It has the state itself, and its iterator is a generator; at its end it begins again."""

    def __init__(self, count, fail):
        self.count, self.done = count, 0

    def __iter__(self):
        info = get_worker_info()
        for index in list(range(info.id, self.count - info.id * 24, info.num_workers))[self.done:]:
            self.done += 1
            yield index, self.done
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class Numpy(Position):
    """Its state has arrays, which == does not compare."""

    def state_dict(self):
        import numpy

        return {"at": (self.at, numpy.arange(3)), "total": self.total, "random": self.random.getstate()}

    def load_state_dict(self, state):
        super().load_state_dict(dict(state, at=state["at"][0]))


class Forgetful(Position):
    """Loads another state than it gave."""

    def load_state_dict(self, state):
        super().load_state_dict(dict(state, total=state["total"] + 1))


class Broken(Position):
    def load_state_dict(self, state):
        raise KeyError("no such shard")


class Ended(Position):
    """Ends the process that loads a state."""

    def load_state_dict(self, state):
        os.kill(os.getpid(), 9)


class Hung(Position):
    def load_state_dict(self, state):
        time.sleep(1e6)


class Slow(Position):
    def load_state_dict(self, state):
        time.sleep(0.5)
        super().load_state_dict(state)


class Counting(Stream):
    """Its iterator has a state, which does not tell what it counts itself."""

    epochs = 0

    def __iter__(self):
        self.epochs += 1
        return Position(self.count, self.fail)


class Hugging(Stream):
    """Wraps what looks like a data set of Hugging Face's."""

    def __init__(self, count, fail):
        super().__init__(count, fail)
        self.inner = type("IterableDataset", (), {"__module__": "datasets.iterable_dataset"})()


class Unstated(IterableDataset):
    def __init__(self, count, fail):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        return iter([(index, 0) for index in range(info.id, self.count, info.num_workers)])


KINDS = {"map": Counted, "bare": Bare, "stream": Stream, "shards": Shards, "unstated": Unstated, "counting": Counting,
         "hugging": Hugging}
for kind in (Numpy, Forgetful, Broken, Ended, Hung, Slow):
    KINDS[kind.__name__.lower()] = type("Stream" + kind.__name__, (Stream,), {"kind": kind, "__module__": __name__})
    globals()["Stream" + kind.__name__] = KINDS[kind.__name__.lower()]


def loader_of(a):
    options = {} if a.dataset not in ("map", "bare") else {"shuffle": True, "generator": torch.Generator()}
    if a.unordered:
        options["in_order"] = False
    return StatefulDataLoader(KINDS[a.dataset](a.count, a.fail), 4, num_workers=a.workers, snapshot_every_n_steps=a.every,
                              multiprocessing_context=a.context, persistent_workers=a.persistent, pin_memory=a.pin,
                              prefetch_factor=a.prefetch, timeout=a.timeout, **options)


def begin(loader):
    if loader.generator is not None:
        loader.generator.manual_seed(5)
    return iter(loader)


def plain(batches, a):
    """Returns the next batch as numbers, an exception as its last line, or None at the end."""
    try:
        batch = next(batches)
    except StopIteration:
        return None
    except ValueError as error:
        return str(error).strip().split("\n")[-1]
    if a.step:
        time.sleep(a.step)
    return [column.tolist() for column in batch]


def rest(a, state):
    """Returns what a fresh loader gives that resumes from state."""
    loader, came = loader_of(a), []
    loader.load_state_dict(state)
    batches = begin(loader)
    while True:
        batch = plain(batches, a)
        if batch is None:
            return came
        came.append(batch)


def indices(order):
    return [batch if isinstance(batch, str) else batch[0] for batch in order]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--size")
    p.add_argument("--dataset", default="map", choices=sorted(KINDS))
    p.add_argument("--count", type=int, default=1200)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--prefetch", type=int, default=2)
    p.add_argument("--timeout", type=float, default=0)
    p.add_argument("--persistent", action="store_true")
    p.add_argument("--unordered", action="store_true")
    p.add_argument("--pin", action="store_true")
    p.add_argument("--context", default="fork")
    p.add_argument("--fail", type=int, nargs="*", default=[])
    p.add_argument("--break-at", type=int, default=0)
    p.add_argument("--save", type=int, default=0, help="a checkpoint each so many batches, resumed at the epoch's end")
    p.add_argument("--step", type=float, default=0.002)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--until", default="")
    p.add_argument("--waits", type=float, default=0.0, help="seconds that the training waits for a replacement")
    p.add_argument("--unpicklable", action="store_true", help="what the data set holds after an epoch cannot be pickled")
    a = p.parse_args()
    if a.waits and "_rsswarden" in sys.modules:
        import _rsswarden.stateful

        _rsswarden.stateful._WAITS = a.waits
    if a.pin:
        import trainer

        trainer.trial().imitate_pinning(torch)
        if not hasattr(torch._C, "_get_privateuse1_backend_name"):
            torch._C._get_privateuse1_backend_name = str  # torchdata asks for it, torch 1.13 has none
    torch.manual_seed(11)
    random.seed(12)
    total, second, wrong, epoch, saved, errors = hashlib.sha256(), None, 0, 0, 0, 0
    loader = loader_of(a)
    while epoch < a.epochs or (a.until and not os.path.exists(a.until)):
        order, states = [], []
        batches = begin(loader)
        while True:
            batch = plain(batches, a)
            if batch is None:
                break
            order.append(batch)
            errors += isinstance(batch, str)
            if a.save and len(order) % a.save == a.save - 1:
                states.append((len(order), loader.state_dict()))
            if len(order) == a.break_at:
                break
        if a.unordered:
            order = sorted(order)
        if epoch:
            second = second or order
            wrong += indices(order) != indices(second)
        if epoch < a.epochs:
            total.update(repr(order).encode())
            total.update(repr((int(torch.randint(1 << 60, ())), random.getrandbits(60))).encode())
        del batches
        for number, state in states:
            wrong += rest(a, state) != order[number:]
            saved += 1
        epoch += 1
        if a.unpicklable:
            loader.dataset.handle = open(os.devnull)
        print(json.dumps({"what": "epoch", "epoch": epoch}), flush=True)
    print(json.dumps({"what": "result", "checksum": total.hexdigest(), "wrong": wrong, "epochs": epoch, "errors": errors,
                      "batches": len(second), "saved": saved}), flush=True)


if __name__ == "__main__":
    main()
