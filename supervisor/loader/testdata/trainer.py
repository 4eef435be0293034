"""A trainer for the tests: loads records, checks each one, and prints a checksum over all of them.

The data are one file of records and one of the sums of their bytes (see
datasets.py). What a batch holds is checked against what the sampler drew,
record by record.
"""
import argparse
import gc
import hashlib
import importlib.util
import itertools
import json
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")

import numpy
import torch

import datasets
import samplers

torch.set_num_threads(1)
FORK = "fork" if sys.version_info >= (3, 14) else None  # Python 3.14 starts workers by forkserver, in seconds each


class EndlessLoader(torch.utils.data.DataLoader):
    """One iterator, kept for life in .iterator."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = len(self.batch_sampler)
        object.__setattr__(self, "batch_sampler", samplers.Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self):
        return itertools.islice(self.iterator, self.batches)


def started(worker_id):
    with open(os.environ["STARTED"], "a") as file:
        file.write("%d %d\n" % (worker_id, os.getpid()))


def count():
    """Counts the workers that were started, from 1."""
    with open(os.environ["STARTED"], "a") as file:
        file.write("x")
        file.flush()
        return file.tell()


def birth_fails(worker_id):
    """Kills every worker that is not of the first generation."""
    if count() > int(os.environ["WORKERS"]):
        os.kill(os.getpid(), 9)


def raises(worker_id):
    if count() > int(os.environ["WORKERS"]):
        raise OSError("no more licences")


def hangs(worker_id):
    if count() == int(os.environ["WORKERS"]) + 1:
        time.sleep(1e6)


def dallies(worker_id):
    if count() > int(os.environ["WORKERS"]):
        time.sleep(4)


def preferred(worker_id):
    """Has the kernel's OOM killer take workers first."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


INITS = {"preferred": preferred, "": None, "started": started, "birth": birth_fails, "raise": raises, "hang": hangs, "dally": dallies}


class Feed:
    """One loader, what is drawn for it and its results."""

    def __init__(self, a, seed):
        dataset = self.dataset = datasets.KINDS[a.dataset](a.data, a.size, a.fail, a.slow)
        generator = torch.Generator()
        generator.manual_seed(seed)
        self.part = a.part or len(dataset)
        self.sampler, options = samplers.make(a.sampler, len(dataset), self.part, a.batch, generator)
        self.sums = numpy.fromfile(a.data + ".sums", numpy.int64)
        self.ordered, self.stream, self.infinite = not a.unordered, a.dataset == "stream", a.sampler == "infinite"
        self.batch, self.break_at, self.epochs, self.fails = a.batch, a.break_at, a.epochs, a.fail
        self.total = hashlib.sha256()
        self.draws, self.pids, self.wrong, self.errors, self.most, self.late = [], set(), 0, 0, 0, 0
        self.epoch = self.got = 0
        self.came = []

        options.update(num_workers=a.workers, multiprocessing_context=a.context if a.workers else None, pin_memory=a.pin,
                       worker_init_fn=INITS[a.init])
        if a.unordered:
            options["in_order"] = False
        kind, persistent = torch.utils.data.DataLoader, a.loader == "persistent" and a.workers > 0
        if self.stream:
            dataset = datasets.Stream(dataset)
            options = {k: v for k, v in options.items() if k not in ("sampler", "batch_sampler")}
        elif a.loader == "endless":
            kind = EndlessLoader
        self.loader = kind(dataset, persistent_workers=persistent, **options)
        self.batches = None

    def begin(self):
        if hasattr(getattr(self.sampler.inner, "set_epoch", None), "__call__"):
            self.sampler.inner.set_epoch(self.epoch)
        if self.infinite and self.batches is not None:
            return
        self.batches = iter(self.loader)

    def next(self, number):
        """Takes a batch and checks it; returns whether there was one."""
        if self.infinite and number * self.batch >= self.part:
            return False
        try:
            records, sums, who, drawn, mapped, *names = next(self.batches)
        except StopIteration:
            return False
        except ValueError as error:
            error.__traceback__ = None  # else it holds the iterator, and its workers end by the garbage collector, in 5 s each
            if self.epoch < self.epochs:  # as for batches: --until may take more
                self.errors += 1
                self.total.update(("%d %d %s" % (self.epoch, number, str(error).strip().split("\n")[-1])).encode())
            elif not self.fails:
                self.wrong += 1
            self.got += self.batch
            return True
        self.wrong += int((torch.from_numpy(self.sums)[records] != sums).sum())
        if names and isinstance(names[0][0], bytes):
            self.wrong += sum(text != bytes([i % 251]) * 22000 for i, text in zip(records.tolist(), names.pop()))
        for name in zip(*[column.tolist() for column in names[0]]) if names else ():
            self.wrong += not os.path.exists("".join(map(chr, name)))
        records = records.tolist()
        if self.ordered and not self.stream:
            wanted = self.wanted(self.got, len(records))
            self.wrong += sum(r != w for r, w in zip(records, wanted)) + abs(len(records) - len(wanted))
        self.came += records
        self.got += len(records)
        if self.epoch < self.epochs:
            self.total.update(repr((self.epoch, number, records, sums.tolist())).encode())
        self.draws += drawn.tolist()
        self.pids |= set(who.tolist())
        self.most = max(self.most, int(mapped.max()))
        if self.epoch:
            self.late = max(self.late, int(mapped.max()))
        return True

    def wanted(self, first, count):
        if self.infinite:
            first += self.epoch * -(-self.part // self.batch) * self.batch
            return self.sampler.drawn[0][first:first + count]
        return self.sampler.drawn[self.epoch][first:first + count]

    def end(self):
        if not self.ordered:
            self.wrong += sorted(self.came) != sorted(self.wanted(0, len(self.came)))
        if not self.break_at and self.got < self.part:
            self.wrong += 1
        self.epoch += 1
        self.got, self.came = 0, []

    def close(self):
        self.batches = None
        if hasattr(self.loader, "iterator"):
            self.loader.iterator = None
        self.loader = None


class Killer(threading.Thread):
    """Kills workers: after every so many batches one, at a random moment."""

    def __init__(self, feeds, count, every):
        super().__init__(daemon=True)
        self.feeds, self.count, self.every, self.came = feeds, count, every, 0
        self.due, self.random, self.killed = threading.Event(), random.Random(), 0
        self.start()

    def batch(self):
        self.came += 1
        if self.came % self.every == 0:
            self.due.set()

    def run(self):
        while self.killed < self.count:
            self.due.wait()
            self.due.clear()
            time.sleep(self.random.random() * 0.02)
            feed = self.random.choice(self.feeds)
            workers = list(getattr(getattr(feed.loader, "iterator", feed.batches), "_workers", ()))
            try:
                if workers:
                    os.kill(self.random.choice(workers).pid, signal.SIGKILL)
                    self.killed += 1
            except ProcessLookupError:
                pass  # its loader has ended


def run(a):
    torch.manual_seed(11)
    random.seed(12)
    numpy.random.seed(13)
    if a.pin:
        trial().imitate_pinning(torch)
    if a.sharing:
        torch.multiprocessing.set_sharing_strategy(a.sharing)
    feeds = [Feed(a, 7 + n) for n in range(2 if a.pair else 1)]
    killer = Killer(feeds, a.kills, a.every)
    say("ready", pid=os.getpid())

    waits, spent, batches = [], 0.0, 0
    first_fds, fds = None, 0
    epoch, reader = 0, None
    while epoch < a.epochs or killer.is_alive() or (a.until and not os.path.exists(a.until)):
        if a.main_reads and epoch:
            for feed in feeds:
                feed.dataset[epoch % len(feed.dataset)]
        for feed in feeds:
            if a.changes and os.path.exists(a.changes):
                feed.dataset.epoch = epoch
            feed.begin()
        for batch in itertools.count():
            began = time.perf_counter()
            if not all([feed.next(batch) for feed in feeds]):
                break
            waits.append(time.perf_counter() - began)
            killer.batch()
            if a.step:
                time.sleep(a.step)
            if a.inner and batch % a.inner == a.inner - 1:
                inside(feeds[0])
            if a.break_at and batch + 1 == a.break_at:
                break
        batches += batch
        for feed in feeds:
            feed.end()
        epoch += 1
        if a.reader and reader is None:
            reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        if a.unpicklable:
            feeds[0].dataset.handle = open(os.devnull)
        fds = len(os.listdir("/proc/self/fd"))
        first_fds = first_fds or fds
        say("epoch", epoch=epoch, got=a.part)
    if reader is not None:
        reader.stdin.close()
        try:
            reader.wait(20)
        except subprocess.TimeoutExpired:
            feeds[0].errors += 1
            reader.kill()
    main_draw = random.getrandbits(60), int(torch.randint(1 << 60, ())), int(numpy.random.randint(1 << 60))
    for feed in feeds:
        feed.close()
    # Workers of an iterator that is left to the garbage collector end late, in 5 s each.
    held = any(type(o).__name__ == "_MultiProcessingDataLoaderIter" for o in gc.get_objects())
    gc.collect()
    draws = [draw for feed in feeds for draw in feed.draws]
    say("result", checksum="".join(feed.total.hexdigest() for feed in feeds), wrong=sum(feed.wrong for feed in feeds),
        errors=sum(feed.errors for feed in feeds), epochs=epoch, batches=batches,
        main=hashlib.sha256(repr(main_draw).encode()).hexdigest(),
        draws=hashlib.sha256(repr(sorted(draws) if a.unordered else draws).encode()).hexdigest(),
        held=held, repeated=len(draws) - len(set(draws)),
        workers=len(set().union(*[feed.pids for feed in feeds])), mapped=max(feed.most for feed in feeds),
        late=max(feed.late for feed in feeds), fds=[first_fds, fds],
        waits=[sorted(waits)[len(waits) // 2], max(waits)])


def inside(feed):
    """Runs a loader with workers to its end, inside the loop over another."""
    indices = list(range(0, 64, 2))
    came = []
    for records, *_ in torch.utils.data.DataLoader(torch.utils.data.Subset(feed.dataset, indices), 8, num_workers=1):
        came += records.tolist()
    feed.wrong += came != indices


def trial():
    """The module of the hook that makes trials, which this process need not have the hook for."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hook", "_rsswarden", "trial.py")
    spec = importlib.util.spec_from_file_location("trial", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def say(what, **fields):
    print(json.dumps(dict(fields, what=what)), flush=True)


def refuse_fork(after, error):
    fork, count = os.fork, itertools.count()

    def refusing():
        if next(count) >= after:
            raise error
        return fork()

    os.fork = refusing


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--size", type=int, required=True)
    p.add_argument("--loader", default="persistent", choices=("persistent", "plain", "endless"))
    p.add_argument("--dataset", default="mmap", choices=sorted(datasets.KINDS))
    p.add_argument("--sampler", default="part")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--part", type=int, default=0, help="records of an epoch")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--break-at", type=int, default=0)
    p.add_argument("--unordered", action="store_true", help="in_order=False")
    p.add_argument("--pin", action="store_true", help="with torch's pin thread, emulated")
    p.add_argument("--sharing", default="", help="sharing strategy of torch.multiprocessing")
    p.add_argument("--pair", action="store_true", help="two loaders at once")
    p.add_argument("--inner", type=int, default=0, help="runs another loader inside the loop after so many batches")
    p.add_argument("--child", default="", help="start method of a child of multiprocessing that does it all")
    p.add_argument("--fail", type=int, nargs="*", default=[])
    p.add_argument("--slow", type=float, default=0.0, help="seconds a record takes")
    p.add_argument("--init", default="", choices=sorted(INITS))
    p.add_argument("--patience", type=float, default=0.0, help="seconds that the hook waits for a replacement")
    p.add_argument("--told", type=float, default=0.0, help="seconds that it waits for a worker that was told to end")
    p.add_argument("--kills", type=int, default=0, help="of workers, by SIGKILL")
    p.add_argument("--every", type=int, default=8, help="batches between two of them")
    p.add_argument("--unpicklable", action="store_true", help="what the dataset holds after an epoch cannot be pickled")
    p.add_argument("--context", default=FORK, type=lambda name: name or None, help="empty for Python's own")
    p.add_argument("--preload", nargs="*", default=[], help="modules that the fork server imports before it starts a worker")
    p.add_argument("--step", type=float, default=0.005)
    p.add_argument("--until", default="", help="runs epochs until this file exists")
    p.add_argument("--main-reads", action="store_true", help="reads a record in the trainer between epochs")
    p.add_argument("--reader", action="store_true", help="starts a program after an epoch that reads a pipe to its end; an error where that does not come")
    p.add_argument("--no-cure", action="store_true", help="without the cure for inherited file offsets")
    p.add_argument("--verbs", default="", help="has a file open that stands for an InfiniBand device")
    p.add_argument("--helper", action="store_true", help="has a fork helper however small the trainer is")
    p.add_argument("--changes", default="", help="sets an attribute of the dataset once this file exists")
    p.add_argument("--ballast", type=float, default=0.0, help="GiB of memory in small pages")
    p.add_argument("--refuse-fork", type=int, default=-1, help="os.fork fails after so many")
    p.add_argument("--refuse-oddly", action="store_true", help="with another error than the system's")
    a = p.parse_args()

    if a.no_cure:
        import _rsswarden.descriptors
        _rsswarden.descriptors.positions = dict
    if a.verbs:
        import _rsswarden.birth
        _rsswarden.birth._VERBS = os.path.dirname(a.verbs)
        a.device = open(a.verbs, "w")
    if a.helper and "_rsswarden" in sys.modules:
        import _rsswarden.fork_helper
        _rsswarden.fork_helper.LEAST = 0
    if a.ballast:
        a.memory = mmap.mmap(-1, int(a.ballast * (1 << 30)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        a.memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, len(a.memory), mmap.PAGESIZE):
            a.memory[at] = 1
    if a.refuse_fork >= 0:
        refuse_fork(a.refuse_fork, RuntimeError("can't start new thread") if a.refuse_oddly else
                    BlockingIOError(11, "Resource temporarily unavailable"))
    if a.patience:
        import _rsswarden.recycle
        _rsswarden.recycle._PATIENCE = a.patience
    if a.told:
        import _rsswarden.recycle
        _rsswarden.recycle._TOLD = a.told
    if a.preload:
        multiprocessing.set_forkserver_preload(a.preload)
    os.environ["WORKERS"] = str(a.workers)
    if not a.child:
        run(a)
        return
    child = multiprocessing.get_context(a.child).Process(target=run, args=(a,))
    child.start()
    child.join()
    sys.exit(child.exitcode)


if __name__ == "__main__":
    main()
