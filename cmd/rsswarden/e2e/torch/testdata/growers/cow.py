# A list of Python objects: to look at one is to write its reference count, and that
# copies the page that the fork shared.
import time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

count, at_once = 1_500_000, 500
torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.samples = [(i, "image_%09d.jpg" % i) for i in range(count)]

    def __len__(self):
        return count // at_once

    def __getitem__(self, i):
        time.sleep(0.006)
        return sum(number for number, name in self.samples[i * at_once:(i + 1) * at_once] if name)


over = lasting(28)
loader = DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
while not over():
    for batch in loader:
        if over():
            break
