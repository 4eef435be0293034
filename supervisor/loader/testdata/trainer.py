"""A trainer for the tests: loads records, checks each one, and prints a checksum over all of them.

The data are one file of records; record i begins with i as eight bytes and goes
on with bytes that follow from i. What a batch holds is checked against the
permutation that the sampler drew, record by record.
"""
import argparse
import gc
import hashlib
import itertools
import json
import mmap
import os
import random
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import numpy
import torch

torch.set_num_threads(1)


class Records(torch.utils.data.Dataset):
    """Maps the file read-only; opened in the trainer, as LMDB users do."""

    def __init__(self, path, size, fail=(), slow=0.0):
        self.slow = slow
        self.path, self.size, self.fail = path, size, frozenset(fail)
        self.count = os.path.getsize(path) // size
        self.map = None
        self.open()

    def open(self):
        with open(self.path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    def __getstate__(self):
        state = dict(self.__dict__)
        state["map"] = None
        return state

    def __len__(self):
        return self.count

    def read(self, index):
        if self.map is None:
            self.open()
        return self.map[index * self.size:(index + 1) * self.size]

    def __getitem__(self, index):
        if self.slow:
            time.sleep(self.slow)
        if index in self.fail:
            raise ValueError("record %d" % index)
        raw = numpy.frombuffer(self.read(index), numpy.uint8)
        record = int(raw[:8].view(numpy.int64)[0])
        draws = random.getrandbits(60), int(torch.randint(1 << 60, ()))
        return record, int(raw.sum(dtype=numpy.int64)), os.getpid(), draws[0] ^ draws[1], shared()


class Plain(Records):
    """Reads a file that is opened at the first use, and has one offset."""

    def open(self):
        self.map = None
        self.file = None

    def __getstate__(self):
        state = super().__getstate__()
        state["file"] = None
        return state

    def read(self, index):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        self.file.seek(index * self.size)
        time.sleep(0.0002)
        return self.file.read(self.size).ljust(self.size, b"\0")


class Leaky(Records):
    def __getitem__(self, index):
        self.__dict__.setdefault("kept", []).append(b"x" * 50000)
        return super().__getitem__(index)


def shared():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[2]) * 4096


class Endless:
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return itertools.chain.from_iterable(self.inner for _ in itertools.count())


class EndlessLoader(torch.utils.data.DataLoader):
    """One iterator, kept for life in .iterator."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = len(self.batch_sampler)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self):
        return itertools.islice(self.iterator, self.batches)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, records):
        self.records = records

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, len(self.records), step):
            yield self.records[index]


def started(worker_id):
    with open(os.environ["STARTED"], "a") as file:
        file.write("%d %d\n" % (worker_id, os.getpid()))


def birth_fails(worker_id):
    """Kills every worker that is not of the first generation."""
    if os.path.exists(os.environ["STARTED"]) and os.path.getsize(os.environ["STARTED"]) >= birth_fails.workers:
        os.kill(os.getpid(), 9)
    with open(os.environ["STARTED"], "a") as file:
        file.write("x")


class Sampler(torch.utils.data.Sampler):
    def __init__(self, count, part, generator):
        self.count, self.part, self.generator, self.drawn = count, part, generator, []

    def __len__(self):
        return self.part

    def __iter__(self):
        order = torch.randperm(self.count, generator=self.generator).tolist()[:self.part]
        self.drawn.append(order)
        yield from order


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--size", type=int, required=True)
    p.add_argument("--loader", default="persistent", choices=("persistent", "plain", "endless"))
    p.add_argument("--dataset", default="mmap", choices=("mmap", "plain", "leaky", "stream"))
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--part", type=int, default=0, help="records of an epoch")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--break-at", type=int, default=0)
    p.add_argument("--fail", type=int, nargs="*", default=[])
    p.add_argument("--slow", type=float, default=0.0, help="seconds a record takes")
    p.add_argument("--init", default="", choices=("", "started", "birth"))
    p.add_argument("--context", default=None)
    p.add_argument("--step", type=float, default=0.002)
    p.add_argument("--until", default="", help="runs epochs until this file exists")
    p.add_argument("--main-reads", action="store_true", help="reads a record in the trainer between epochs")
    p.add_argument("--fault", default="", help="MODULE.NAME[.NAME] of the hook to raise when called")
    p.add_argument("--no-cure", action="store_true")
    p.add_argument("--refuse-fork", type=int, default=-1, help="os.fork fails after so many")
    p.add_argument("--time-hook", action="store_true")
    a = p.parse_args()

    if a.fault:
        inject(a.fault)
    if a.no_cure:
        import _rsswarden.offsets
        _rsswarden.offsets.positions = dict
    if a.refuse_fork >= 0:
        refuse_fork(a.refuse_fork)
    if a.init == "birth":
        birth_fails.workers = a.workers

    torch.manual_seed(11)
    random.seed(12)
    numpy.random.seed(13)
    dataset = {"mmap": Records, "plain": Plain, "leaky": Leaky, "stream": Records}[a.dataset](
        a.data, a.size, a.fail, a.slow)
    generator = torch.Generator()
    generator.manual_seed(7)
    sampler = Sampler(len(dataset), a.part or len(dataset), generator)
    options = dict(batch_size=a.batch, num_workers=a.workers, multiprocessing_context=a.context,
                   worker_init_fn={"": None, "started": started, "birth": birth_fails}[a.init])
    if a.dataset == "stream":
        loader = torch.utils.data.DataLoader(Stream(dataset), persistent_workers=a.loader == "persistent", **options)
    elif a.loader == "endless":
        loader = EndlessLoader(dataset, sampler=sampler, **options)
    else:
        loader = torch.utils.data.DataLoader(
            dataset, sampler=sampler, persistent_workers=a.loader == "persistent" and a.workers > 0, **options)
    say("ready", pid=os.getpid())

    total = hashlib.sha256()
    draws, pids, wrong, most, late, errors = [], set(), 0, 0, 0, 0
    waits = []
    first_fds, fds = None, 0
    epoch = 0
    while epoch < a.epochs or (a.until and not os.path.exists(a.until)):
        if a.main_reads and epoch:
            dataset[epoch % len(dataset)]
        batches = iter(loader)
        got = 0
        for batch in itertools.count():
            began = time.perf_counter()
            try:
                records, sums, who, drawn, mapped = next(batches)
            except StopIteration:
                break
            except ValueError as error:
                errors += 1
                total.update(("%d %d %s" % (epoch, batch, str(error).strip().split("\n")[-1])).encode())
                got += a.batch
                continue
            waits.append(time.perf_counter() - began)
            records = records.tolist()
            if a.dataset != "stream":
                wanted = sampler.drawn[epoch][got:got + len(records)]
                wrong += sum(r != w for r, w in zip(records, wanted)) + abs(len(records) - len(wanted))
            got += len(records)
            if epoch < a.epochs:
                total.update(repr((epoch, batch, records, sums.tolist())).encode())
            draws += drawn.tolist()
            pids |= set(who.tolist())
            most = max(most, int(mapped.max()))
            if epoch:
                late = max(late, int(mapped.max()))
            if a.step:
                time.sleep(a.step)
            if a.break_at and batch + 1 == a.break_at:
                break
        else:
            batch = -1
        if not a.break_at and got != (a.part or len(dataset)):
            wrong += 1
        epoch += 1
        fds = len(os.listdir("/proc/self/fd"))
        first_fds = first_fds or fds
        say("epoch", epoch=epoch, got=got)
    main_draw = random.getrandbits(60), int(torch.randint(1 << 60, ())), int(numpy.random.randint(1 << 60))
    del batches
    if a.loader == "endless":
        loader.iterator = None
    del loader
    gc.collect()
    say("result", checksum=total.hexdigest(), wrong=wrong, errors=errors, epochs=epoch,
        main=hashlib.sha256(repr(main_draw).encode()).hexdigest(),
        draws=hashlib.sha256(repr(draws).encode()).hexdigest(), repeated=len(draws) - len(set(draws)),
        workers=len(pids), mapped=most, late=late, fds=[first_fds, fds],
        waits=[sorted(waits)[len(waits) // 2], max(waits)])


def say(what, **fields):
    print(json.dumps(dict(fields, what=what)), flush=True)


def inject(names):
    """Has a function of the hook raise: a plain error of ours, wherever it is called from."""
    import importlib

    module, *path = names.split(".")
    owner = importlib.import_module("_rsswarden." + module)
    for name in path[:-1]:
        owner = getattr(owner, name)

    def fault(*args, **kwargs):
        raise ZeroDivisionError("injected into " + names)

    if not hasattr(owner, path[-1]):
        raise AttributeError(names)
    setattr(owner, path[-1], fault)


def refuse_fork(after):
    fork, count = os.fork, itertools.count()

    def refusing():
        if next(count) >= after:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    os.fork = refusing


if __name__ == "__main__":
    main()
