#!/usr/bin/env python3
"""Many small tasks in a pool of processes whose workers keep something of each, as tokenizers, decoders and caches do.

It prints a checksum over all results in their order, which must not depend on whether workers
were replaced meanwhile. Needs nothing but Python.
"""
import argparse
import concurrent.futures
import multiprocessing
import time
import zlib

CACHE = []  # what a worker never gives back


def task(number, kept, seconds):
    CACHE.append(bytearray(b"x" * kept))
    time.sleep(seconds)
    return zlib.crc32(b"%d" % number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", choices=["Pool", "ProcessPoolExecutor"], default="Pool")
    parser.add_argument("--start", choices=["fork", "spawn", "forkserver"], default="fork", help="how workers are started")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--keep", type=int, default=1024, metavar="KIB", help="what a worker keeps of each task")
    parser.add_argument("--ms", type=float, default=20, help="what a task takes")
    options = parser.parse_args()

    context = multiprocessing.get_context(options.start)
    numbers = range(options.tasks)
    more = [options.keep << 10] * options.tasks, [options.ms / 1000] * options.tasks
    checksum = 0
    if options.pool == "Pool":
        with context.Pool(options.workers) as pool:
            results = pool.starmap(task, zip(numbers, *more), chunksize=1)
    else:
        with concurrent.futures.ProcessPoolExecutor(options.workers, context) as pool:
            results = list(pool.map(task, numbers, *more))
    for result in results:
        checksum = zlib.crc32(result.to_bytes(4, "little"), checksum)
    print("%d tasks" % len(results))
    print("checksum %08x" % checksum)


if __name__ == "__main__":
    main()
