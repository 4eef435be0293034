# Large batches, loaded eight ahead by each of two workers, and a slow trainer.
import time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        return torch.zeros(65536)


over = lasting(26)
for batch in DataLoader(Samples(), batch_size=64, num_workers=2, prefetch_factor=8):
    time.sleep(2)
    if over():
        break
