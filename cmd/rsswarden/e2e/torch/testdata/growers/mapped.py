# LMDB read by workers that stay: each maps the whole file in the end.
import os, sys, time
import lmdb
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

path, size, count = os.path.join(sys.argv[1], "data.lmdb"), 64 << 10, 4000
torch.set_num_threads(1)


class Records(Dataset):
    env = None

    def __len__(self):
        return count

    def __getitem__(self, i):
        if self.env is None:
            self.env = lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False)
        time.sleep(0.02)
        with self.env.begin() as txn:
            return torch.tensor(sum(txn.get(b"%08d" % i)[::512]))


env = lmdb.open(path, map_size=1 << 30, subdir=False, sync=False)
with env.begin(write=True) as txn:
    for i in range(count):
        txn.put(b"%08d" % i, bytes([i % 251]) * size, append=True)
env.close()
over = lasting(22)
loader = DataLoader(Records(), batch_size=16, num_workers=3, persistent_workers=True)
while not over():
    for batch in loader:
        if over():
            break
