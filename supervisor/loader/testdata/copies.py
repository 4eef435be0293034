"""Loads a data set that is in memory until the file --until is there.

--set chooses the start method for the program, --context for the loader; without
both it is Python's own. --child runs it all in a process started so. With the shape
"opened" each worker makes the data by itself in place of getting it.
"""
import argparse
import multiprocessing
import os
import time
import warnings

warnings.filterwarnings("ignore")

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Data(Dataset):
    def __init__(self, shape, mib):
        self.mib = mib
        self.rows = None
        if shape == "numpy":
            self.rows = rows(mib)
        elif shape == "tensor":
            self.rows = torch.from_numpy(rows(mib))
        elif shape == "list":
            self.rows = [bytes(4096 - 33) for _ in range(mib << 8)]

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return int(self.rows[index][0])


def rows(mib):
    return numpy.ones((mib << 8, 4096), numpy.uint8)


def fill(worker_id):
    data = torch.utils.data.get_worker_info().dataset
    data.rows = rows(data.mib)


def run(options):
    if options.set:
        torch.multiprocessing.set_start_method(options.set)
    loader = DataLoader(Data(options.shape, options.mib), batch_size=8, num_workers=options.workers, persistent_workers=True,
                        multiprocessing_context=options.context or None, worker_init_fn=fill if options.shape == "opened" else None)
    for batch in loader:
        pass
    while not os.path.exists(options.until):
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", required=True)
    parser.add_argument("--set", default="")
    parser.add_argument("--context", default="")
    parser.add_argument("--child", default="")
    parser.add_argument("--shape", default="numpy")
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    options, _ = parser.parse_known_args()
    if not options.child:
        return run(options)
    child = multiprocessing.get_context(options.child).Process(target=run, args=(options,))
    child.start()
    child.join()


if __name__ == "__main__":
    main()
