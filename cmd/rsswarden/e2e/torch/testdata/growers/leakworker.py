# A data set that keeps what it has read.
import time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.seen = []

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        self.seen.append(bytearray(50_000))
        return i


over = lasting(35)
for batch in DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2):
    if over():
        break
