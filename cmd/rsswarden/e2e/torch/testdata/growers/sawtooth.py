# Innocent: validation phases that take memory and give it back, and a cache in the
# workers that is soon full.
import time
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.cache = []

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        if time.time() - begin < 10:
            self.cache.append(bytearray(150_000))
        return i


begin, outputs = time.time(), []
for batch in DataLoader(Samples(), batch_size=8, num_workers=2):
    now = time.time() - begin
    if now % 9 < 6:
        while len(outputs) < now % 9 * 15:
            outputs.append(torch.ones(1 << 20))
    else:
        outputs.clear()
    if now > 32:
        break
