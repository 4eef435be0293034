# Blocks of many sizes, nine of ten freed: glibc keeps the pages until malloc_trim.
import random, time
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


rng, over, kept, rounds = random.Random(1), lasting(12), [], 0
for step, batch in enumerate(DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2)):
    if step % 150 == 100 and rounds < 2:
        blocks = [bytes(rng.randrange(600, 4000)) for _ in range(100_000)]
        kept += blocks[::10]
        del blocks
        rounds += 1
    if over():
        break
