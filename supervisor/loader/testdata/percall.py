"""Prints, as JSON, the CPU time a batch of nothing costs, in µs: in the trainer and in its worker.

The loader has one worker, and both processes' own CPU time is read, so that
what else the machine does counts little.
"""
import json
import sys
import time

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
    print(json.dumps({"trainer": (time.thread_time() - here) / rest * 1e6, "worker": (there - began) / rest * 1e6}))


if __name__ == "__main__":
    main()
