# The file_system strategy: a torch_shm_manager for each process that shares tensors.
import time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.multiprocessing.set_sharing_strategy("file_system")
torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.full((16,), float(i))


over = lasting(9)
for batch in DataLoader(Samples(), batch_size=8, num_workers=3):
    if over():
        break
