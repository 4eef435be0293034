"""Prints, as JSON, the CPU time a batch of nothing costs, in µs: in the trainer and in its worker.

The loader has one worker, and both processes' own CPU time is read, so that
what else the machine does counts little.
"""
import json
import sys
import time
import timeit

import torch

torch.set_num_threads(1)


class Nothing(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return time.process_time()


def first(items):
    return items[0]


def main():
    batches = int(sys.argv[1])
    loader = torch.utils.data.DataLoader(
        Nothing(), batch_sampler=[[0]] * batches, num_workers=1, collate_fn=first, prefetch_factor=16)
    iterator = iter(loader)
    for _ in range(batches // 10):
        there = next(iterator)
    rest, here, began = batches - batches // 10, time.thread_time(), there
    for _ in range(rest):
        there = next(iterator)
    got = {"trainer": (time.thread_time() - here) / rest * 1e6, "worker": (there - began) / rest * 1e6}
    if "_rsswarden.patch" in sys.modules:
        got.update(lookups(iterator, sys.modules["_rsswarden.patch"]))
    print(json.dumps(got))


def lookups(iterator, patch):
    """What looking the methods up costs with the hook, and more than it does bare: with a look each 50 ms, and each time."""
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(Nothing(), True, first, False)
    plain = least("iterator._put", iterator=type("", (), {"_put": lambda self: None})())
    got = {}
    for name, pause in (("", patch._PAUSE), ("_each", 0.0)):
        patch._PAUSE = pause
        process = patch._here()
        process.next = process.quiet = process.rest = iterator._rsswarden.rest = 0.0
        got["poll" + name] = least("iterator._next_data", iterator=iterator) - plain
        got["fetch" + name] = least("fetcher.fetch", fetcher=fetcher) - plain
    return got


def least(statement, **names):
    return min(timeit.repeat(statement, globals=names, number=2000, repeat=20)) / 2000 * 1e6


if __name__ == "__main__":
    main()
