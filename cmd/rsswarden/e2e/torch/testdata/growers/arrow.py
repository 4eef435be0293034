# What pyarrow does with a file: MAP_PRIVATE and PROT_READ. Debian 12 has no pyarrow,
# so the mapping is made here as its memory_map makes it.
import mmap, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

path, size, count = os.path.join(sys.argv[1], "train-00000.arrow"), 64 << 10, 4000
torch.set_num_threads(1)


class Table(Dataset):
    data = None

    def __len__(self):
        return count

    def __getitem__(self, i):
        if self.data is None:
            with open(path, "rb") as f:
                self.data = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
        time.sleep(0.01)
        return torch.tensor(sum(self.data[i * size:(i + 1) * size:512]))


with open(path, "wb") as f:
    for i in range(count):
        f.write(bytes([i % 251]) * size)
over = lasting(17)
loader = DataLoader(Table(), batch_size=16, shuffle=True, num_workers=3, persistent_workers=True)
while not over():
    for batch in loader:
        if over():
            break
