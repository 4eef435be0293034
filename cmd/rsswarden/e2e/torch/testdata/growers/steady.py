# Innocent: one tensor, forked workers, small batches.
import time
import torch
from torch.utils.data import DataLoader, TensorDataset
from lasting import lasting

torch.set_num_threads(1)
samples = TensorDataset(torch.ones(300_000, 256))
over = lasting(24)
loader = DataLoader(samples, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
while not over():
    for batch in loader:
        time.sleep(0.01)
        if over():
            break
