# Blocks of many sizes, nine of ten freed: glibc keeps the pages until malloc_trim.
# With "alone" it calls that itself, and what it gave back is the one line that is
# written, as the loader hook tells it.
import ctypes, os, random, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        return i


def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


rng, over, kept, rounds = random.Random(1), lasting(12), [], 0
for step, batch in enumerate(DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2)):
    if step % 150 == 100 and rounds < 2:
        blocks = [bytes(rng.randrange(600, 4000)) for _ in range(100_000)]
        kept += blocks[::10]
        del blocks
        rounds += 1
    if over():
        break
if "alone" in sys.argv:
    before = resident()
    ctypes.CDLL(None).malloc_trim(0)
    print("collected", os.getpid(), before - resident(), flush=True)
    time.sleep(3)
