# An array in the trainer, and workers that are not forked: each gets a copy.
import time
import numpy
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)


class Rows(Dataset):
    def __init__(self):
        self.rows = numpy.ones((120 << 8, 4096), numpy.uint8)

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        return int(self.rows[i % len(self.rows)][0])


if __name__ == "__main__":
    rows = Rows()
    over = None  # counted from the first batch: until then workers import torch
    for batch in DataLoader(rows, batch_size=8, num_workers=2, multiprocessing_context="forkserver"):
        over = over or lasting(10)
        if over():
            break
