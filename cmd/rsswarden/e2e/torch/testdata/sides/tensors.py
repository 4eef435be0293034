"""Trains in a process of its own, on a list of small tensors, as users have reported.

tensors.py METHOD STRATEGY COUNT FILE: how the process is started, how tensors are
shared, how many there are, and where to write when and how it failed.
"""
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.multiprocessing as mp


class Tensors(torch.utils.data.Dataset):
    def __init__(self, n):
        self.tensors = [torch.full((80,), float(i)) for i in range(n)]

    def __len__(self):
        return len(self.tensors)

    def __getitem__(self, i):
        return self.tensors[i]


def train(strategy, n, file):
    torch.multiprocessing.set_sharing_strategy(strategy)
    result = {"ok": False}
    try:
        loader = torch.utils.data.DataLoader(Tensors(n), batch_size=1, num_workers=1)
        batch = next(iter(loader))
        result["ok"] = float(batch.sum()) == 0.0
    except Exception as e:
        result["error"] = str(e)[:200]
    result["time"] = time.time()
    with open(file, "w") as f:
        json.dump(result, f)
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    method, strategy, n, file = sys.argv[1:]
    p = mp.get_context(method).Process(target=train, args=(strategy, int(n), file))
    p.start()
    p.join()
    sys.exit(p.exitcode)
