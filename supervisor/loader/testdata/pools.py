"""Runs rounds of tasks in a pool of processes and checks each: its result, its place, and that it ran once.

Prints {"what": "epoch"} after each round and {"what": "result", ...} at the end. wrong counts
what was lost, doubled, out of place or not as it should be; errors counts tasks that raised, as
some are made to.
"""
import argparse
import gc
import json
import os
import sys
import time
import zlib

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--pool", default="multiprocessing")
PARSER.add_argument("--start", default="fork")
PARSER.add_argument("--how", default="map")
PARSER.add_argument("--workers", type=int, default=3)
PARSER.add_argument("--tasks", type=int, default=300)  # a round
PARSER.add_argument("--rounds", type=int, default=1 << 30)
PARSER.add_argument("--limit", type=int)  # maxtasksperchild, max_tasks_per_child
PARSER.add_argument("--map", type=int, default=0)  # MiB that each worker maps
PARSER.add_argument("--sleep", type=float, default=0.001)  # seconds of a task
PARSER.add_argument("--tensors", action="store_true")  # a result is one of torch, in shared memory
PARSER.add_argument("--once", action="store_true")  # the initializer fails in a worker that replaces another
PARSER.add_argument("--until")
PARSER.add_argument("--data")
PARSER.add_argument("--size", type=int)
OPTIONS = PARSER.parse_args()

if OPTIONS.tensors or OPTIONS.pool == "torch":
    import torch.multiprocessing

TOKEN = None
MAPPED = None


def begin(token, size):
    """Is the initializer."""
    if OPTIONS.once:
        with open(os.environ["STARTED"] + ".begun", "a+") as file:
            file.write("x")
            if file.tell() > OPTIONS.workers:
                raise OSError("begun too often")
    global TOKEN, MAPPED
    TOKEN = token
    if size:
        import mmap

        with open(OPTIONS.data, "rb") as file:
            MAPPED = mmap.mmap(file.fileno(), size << 20, prot=mmap.PROT_READ)


def begun():
    if TOKEN is None:  # loky's, under joblib, have no initializer
        begin("token", OPTIONS.map)


def task(number):
    begun()
    fd = os.open(os.environ["STARTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d\n" % number)
    os.close(fd)
    if MAPPED is not None:
        for page in range(0, len(MAPPED), 4096):
            MAPPED[page]
    time.sleep(OPTIONS.sleep)
    if number % 97 == 13:
        raise ValueError(number)
    if OPTIONS.tensors:
        return torch.tensor([number, zlib.crc32(b"%d" % number)])
    return number, TOKEN, zlib.crc32(b"%d" % number), os.getpid()


def safe(number):
    """Is a task whose exception is its result, for what ends at the first."""
    try:
        return task(number)
    except ValueError as error:
        return error


class Standard:
    def __init__(self, module):
        made = module.get_context(OPTIONS.start).Pool
        if OPTIONS.pool == "torch":
            made = module.Pool
        self.pool = made(OPTIONS.workers, begin, ("token", OPTIONS.map), OPTIONS.limit)

    def round(self, numbers):
        if OPTIONS.how == "apply_async":
            for answer in [self.pool.apply_async(task, (n,)) for n in numbers]:
                try:
                    yield answer.get(300)
                except ValueError as error:
                    yield error
        elif OPTIONS.how == "map":
            for answer in self.pool.map(safe, numbers, chunksize=2):
                yield answer
        else:
            for answer in getattr(self.pool, OPTIONS.how)(safe, numbers):
                yield answer

    def end(self):
        self.pool.close()
        self.pool.join()


class Executor:
    def __init__(self):
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        more = {} if OPTIONS.limit is None else {"max_tasks_per_child": OPTIONS.limit}
        self.pool = ProcessPoolExecutor(OPTIONS.workers, multiprocessing.get_context(OPTIONS.start), begin, ("token", OPTIONS.map), **more)

    def round(self, numbers):
        if OPTIONS.how == "map":
            for answer in self.pool.map(safe, numbers):
                yield answer
            return
        from concurrent.futures import as_completed

        futures = [self.pool.submit(task, n) for n in numbers]
        for future in as_completed(futures) if OPTIONS.how == "as_completed" else futures:
            yield future.exception(300) or future.result()

    def end(self):
        self.pool.shutdown()


class Loky(Executor):
    def __init__(self):
        from loky import get_reusable_executor

        self.pool = get_reusable_executor(OPTIONS.workers, timeout=300, initializer=begin, initargs=("token", OPTIONS.map))


class Joblib:
    def round(self, numbers):
        from joblib import Parallel, delayed

        return Parallel(n_jobs=OPTIONS.workers, batch_size=2)(delayed(safe)(n) for n in numbers)

    def end(self):
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown()


def made_in(module, make):
    """Returns what make does, called by code of a module of that name."""
    scope = {"__name__": module, "make": make}
    exec("def call():\n    return make()", scope)
    return scope["call"]()


def make():
    if OPTIONS.pool == "datasets":
        return made_in("datasets.arrow_dataset", lambda: Standard(__import__("multiprocessing")))
    if OPTIONS.pool == "inductor":
        return made_in("torch._inductor.compile_worker", Executor)
    if OPTIONS.pool == "torch":
        return Standard(torch.multiprocessing)
    if OPTIONS.pool == "executor":
        return Executor()
    if OPTIONS.pool in ("loky", "joblib"):
        return Loky() if OPTIONS.pool == "loky" else Joblib()
    return Standard(__import__(OPTIONS.pool))


def semaphores():
    """Returns the names of the semaphores that this process has mapped, and of those that its workers have."""
    own, theirs = set(), set()
    processes = [os.getpid()]
    for pid in processes:
        try:
            for thread in os.listdir("/proc/%d/task" % pid):  # a pool's thread starts its workers
                with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                    processes += map(int, file.read().split())
            with open("/proc/%d/maps" % pid) as file:
                names = {line.split()[5] for line in file if "/dev/shm/sem." in line}
        except OSError:
            continue  # it has ended
        (own if pid == os.getpid() else theirs).update(names)
    return own, theirs


def main():
    pool, wrong, errors, total, descriptors, first = make(), 0, 0, 0, [], 0
    mapped, named = [], set()
    for turn in range(OPTIONS.rounds):
        numbers = list(range(first, first + OPTIONS.tasks))
        first += OPTIONS.tasks
        answers = list(pool.round(numbers))
        errors += sum(isinstance(a, ValueError) for a in answers)
        if OPTIONS.tensors:
            answers = [a if isinstance(a, ValueError) else (int(a[0]), "token", int(a[1])) for a in answers]
        got = [(a.args[0], "raised") if isinstance(a, ValueError) else a[:3] for a in answers]
        want = [(n, "raised") if n % 97 == 13 else (n, "token", zlib.crc32(b"%d" % n)) for n in numbers]
        if OPTIONS.how in ("imap_unordered", "as_completed"):
            got.sort(key=lambda a: a[0])
        wrong += sum(g != w for g, w in zip(got, want)) + abs(len(got) - len(want))
        total += len(answers)
        descriptors.append(len(os.listdir("/proc/self/fd")))
        own, theirs = semaphores()
        mapped.append(len(own))
        named |= own | theirs
        print(json.dumps({"what": "epoch"}), flush=True)
        if OPTIONS.until and os.path.exists(OPTIONS.until):
            break
    pool.end()
    del pool, answers  # tracebacks of its exceptions have the pool
    gc.collect()
    with open(os.environ["STARTED"]) as file:
        ran = sorted(int(line) for line in file)
    wrong += abs(len(ran) - total) + sum(a != b for a, b in zip(ran, range(total)))
    print(json.dumps({"what": "result", "wrong": wrong, "errors": errors, "fds": [descriptors[0], descriptors[-1]],
                      "semaphores": [mapped[0], mapped[-1], len(named), sum(map(os.path.exists, named))]}), flush=True)


if __name__ == "__main__":
    main()
