"""Runs rounds of tasks in pools as few programs do, and prints what came of each task at the end, which must be as bare.

Prints {"what": "epoch"} after each round, so many as --rounds says, and {"what": "result",
"checksum": ...} at the end, which is of all that tasks came to, in their order.
"""
import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import zlib

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--case")
PARSER.add_argument("--start", default="fork")
PARSER.add_argument("--rounds", type=int, default=3)
PARSER.add_argument("--patched", choices=("gevent", "eventlet"))
PARSER.add_argument("--until")
PARSER.add_argument("--data")
PARSER.add_argument("--size", type=int)
OPTIONS = PARSER.parse_args()
CONTEXT = multiprocessing.get_context("spawn" if OPTIONS.start == "loky" else OPTIONS.start)
RANK = None
LOCK = threading.Lock()

if OPTIONS.patched == "gevent":
    from gevent import monkey

    monkey.patch_all()
elif OPTIONS.patched == "eventlet":
    import eventlet

    eventlet.monkey_patch()


def plain(number):
    time.sleep(0.15 if OPTIONS.start == "loky" else 0.003)  # loky looks at memory once a second
    return number * 3 % 97


def slow(number):
    time.sleep(0.03)
    return number


def forks(number):
    """Has a child that it forks by itself do the work, and one more that uses a pool of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"%d" % plain(number))
        os._exit(0)
    os.waitpid(pid, 0)
    got = int(os.read(read, 100))
    os.close(read)
    os.close(write)
    return got


def inside(number):
    """Has a pool of its own, whose workers are those of a worker."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(plain, range(number, number + 4), chunksize=1))


def exits(number):
    """Ends its process at some tasks: their results never come."""
    if number % 50 == 17:
        os._exit(3)
    return plain(number)


def locked(number):
    """Holds a lock that the main thread holds most of the time in its process."""
    with LOCK:
        return plain(number)


def numbered(number):
    """Goes by the number of its worker, as one does that has a GPU of its own."""
    return plain(number) + [0, 0, 0][multiprocessing.current_process()._identity[0] - 1]


def take(turns):
    """Is an initializer that takes a number from a queue, which has one for each worker of the start."""
    global RANK
    RANK = turns.get(timeout=30)


def first(started):
    """Is an initializer that counts, and has a list with one entry for each worker of the start."""
    global RANK
    with started.get_lock():
        RANK = [0, 1, 2][started.value]
        started.value += 1


def ranked(number):
    return plain(number) if RANK in (0, 1, 2) else None


class Once:
    """Is an initializer that cannot be unpickled more often than there are workers at the start."""

    def __init__(self, started):
        self.started = started

    def __setstate__(self, state):
        self.__dict__.update(state)
        with self.started.get_lock():
            self.started.value += 1
            if self.started.value > 3:
                raise OSError("unpickled too often")

    def __call__(self):
        global RANK
        RANK = 0


def executor(**more):
    if OPTIONS.start == "loky":
        from loky import process_executor

        return process_executor.ProcessPoolExecutor(3, **more)
    return concurrent.futures.ProcessPoolExecutor(3, CONTEXT, **more)


def outcome(get):
    try:
        return get()
    except Exception as error:
        return type(error).__name__


def main():
    case, task, more = OPTIONS.case, {"forks": forks, "inside": inside, "exits": exits, "locked": locked, "numbered": numbered}.get(OPTIONS.case, plain), {}
    if case in ("queue", "counter", "once"):
        task = ranked
        if case == "queue":
            turns = CONTEXT.Queue()
            for rank in range(3):
                turns.put(rank)
            more = {"initializer": take, "initargs": (turns,)}
        else:
            started = CONTEXT.Value("i", 0)
            more = {"initializer": Once(started)} if case == "once" else {"initializer": first, "initargs": (started,)}
    if case == "single":
        more = {"maxtasksperchild": 1}
    daemon = None
    if case == "daemon":  # a process beside the pool, which is none of its workers
        daemon = CONTEXT.Process(target=time.sleep, args=(300,), daemon=True)
        daemon.start()
    pooled = OPTIONS.start == "fork" and case != "inside" or case == "single"
    pool = CONTEXT.Pool(3, **more) if pooled else executor(**more)
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) if case == "piped" else None
    came, tasks = [], 12 if case == "inside" else 60
    for turn in range(OPTIONS.rounds):
        numbers = range(turn * tasks, (turn + 1) * tasks)
        if pooled:
            answers = [pool.apply_async(task, (n,)) for n in numbers]
            # Bare, the pool never knows of a task whose worker has ended by itself.
            for n, a in zip(numbers, answers):
                came.append(outcome(lambda: a.get(1 if case == "exits" and n % 50 == 17 else 30)))
                with LOCK:
                    time.sleep(0.005 if case == "locked" else 0)
        else:
            answers = [outcome(lambda: pool.submit(task, n)) for n in numbers]
            if case == "closed" and turn == OPTIONS.rounds - 1:
                pool.shutdown(wait=False)
            if case == "dropped":
                pool = executor() if turn < OPTIONS.rounds - 1 else None  # nothing refers to the one that has the tasks
            came += [outcome(lambda: a.result(300)) if hasattr(a, "result") else a for a in answers]
        print(json.dumps({"what": "epoch"}), flush=True)
    if case == "ends":  # Python waits for the last tasks when this script has ended
        late = {}

        def done(number, future):
            late[number] = outcome(future.result)
            if len(late) == 300:
                say_result(came + [late[n] for n in range(300)])

        for n in range(300):
            pool.submit(slow, n).add_done_callback(functools.partial(done, n))
        return
    if case == "exits" and not pooled:
        # How many had been done when one ended is up to chance.
        came = [all(a in (n * 3 % 97, "BrokenProcessPool") for n, a in enumerate(came)), came[-1]]
    if reader is not None:
        reader.stdin.close()
        came.append(outcome(lambda: reader.wait(20)))
        reader.kill()
    if pooled:
        (pool.terminate if case == "exits" else pool.close)()
        pool.join()
    elif pool is not None:
        pool.shutdown()
    if daemon is not None:
        came.append(daemon.is_alive())
        daemon.terminate()
    say_result(came)


def say_result(came):
    if os.environ.get("SHOW"):
        print(came, file=sys.stderr)
    print(json.dumps({"what": "result", "checksum": "%08x" % zlib.crc32(repr(came).encode())}), flush=True)


if __name__ == "__main__":
    main()
