"""Loads a data set of many tensors with workers that are not forked, and prints what that took, as JSON.

--child runs it all in a process of multiprocessing, whose start method is then
the default there; --method gives it to the loader.
"""
import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def data(shape, count):
    if shape == "list":
        return Items([torch.full((80,), float(n)) for n in range(count)])
    if shape == "one":
        return Items(torch.arange(count, dtype=torch.float32).unsqueeze(1).repeat(1, 80))
    if shape == "ints":
        return Items(list(range(count)))
    if shape == "numpy":
        import numpy
        return Items(numpy.zeros((count, 80)))
    sys.exit("no shape " + shape)


_piece = bytearray(1 << 16)  # made before there is no mapping left for it


def maps():
    n = 0
    with open("/proc/self/maps", "rb", buffering=0) as file:
        while got := file.readinto(_piece):
            n += _piece.count(b"\n", 0, got)
    return n


def run(options):
    torch.multiprocessing.set_sharing_strategy(options.strategy)
    if options.nofile:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.nofile, options.hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    dataset = data(options.shape, options.count)
    loader = DataLoader(dataset, batch_size=50, num_workers=options.workers, multiprocessing_context=options.method or None)
    told = {"default": torch.multiprocessing.get_start_method(allow_none=True), "error": "", "records": 0, "wrong": 0}
    spare = [os.dup(0) for _ in range(4)]  # for the count after a failure
    try:
        iterator = iter(loader)
        told["maps"], told["fds"] = maps(), len(os.listdir("/proc/self/fd"))
        for batch in iterator:
            for record in batch:
                told["wrong"] += bool(record.numel() > 1 and float(record[-1]) != told["records"] and options.shape != "numpy")
                told["records"] += 1
    except Exception as error:
        told["error"] = "%s: %s" % (type(error).__name__, error)
        for fd in spare:
            os.close(fd)
        told["maps"], told["fds"] = maps(), len(os.listdir("/proc/self/fd"))
    told.update(pid=os.getpid(), t=time.time(), soft=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    print(json.dumps(told), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", default="")
    parser.add_argument("--fork", action="store_true", help="the cure: workers are forked")
    parser.add_argument("--method", default="")
    parser.add_argument("--strategy", default="file_descriptor")
    parser.add_argument("--shape", default="list")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--nofile", type=int, default=0)
    parser.add_argument("--hard", type=int, default=0)
    options = parser.parse_args()
    if not options.child:
        return run(options)
    child = multiprocessing.get_context(options.child).Process(target=in_child, args=(options,))
    child.start()
    child.join()


def in_child(options):
    if options.fork:
        torch.multiprocessing.set_start_method("fork", force=True)
    run(options)


if __name__ == "__main__":
    main()
