"""Trains over records whose workers leak 2 MiB a record, and checks that each batch comes once, right and in its place."""
import os
import time

import torch

torch.set_num_threads(1)
COUNT = 480


class Leaky(torch.utils.data.Dataset):
    kept = []

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.kept.append(b"x" * (2 << 20))
        time.sleep(0.002)
        return torch.full((1000,), index), os.getpid()


def main():
    order, workers = torch.randperm(COUNT).tolist(), set()
    loader = torch.utils.data.DataLoader(Leaky(), 4, sampler=order, num_workers=2, persistent_workers=True)
    for epoch in range(2):
        came = []
        for data, pids in loader:
            assert bool((data == data[:, :1]).all())
            came += data[:, 0].tolist()
            workers |= set(pids.tolist())
        assert came == order, (epoch, came, order)
    print("right", len(workers), flush=True)


if __name__ == "__main__":
    main()
