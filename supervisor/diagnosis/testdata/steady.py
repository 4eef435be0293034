# Innocent: one tensor, forked workers, small batches.
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
samples = TensorDataset(torch.ones(300_000, 256))
end = time.time() + 24
loader = DataLoader(samples, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
while time.time() < end:
    for batch in loader:
        time.sleep(0.01)
        if time.time() > end:
            break
