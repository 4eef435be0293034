"""Loads batches of 8 MiB ahead of a slow trainer, until /dev/shm is full.

shm.py FILE: where to write when and how it failed.
"""
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        time.sleep(1)  # full after six seconds: the watcher looks every second
        return torch.zeros(2 << 20)


if __name__ == "__main__":
    result = {"ok": False}
    try:
        for batch in torch.utils.data.DataLoader(Slow(), batch_size=1, num_workers=2, prefetch_factor=8):
            time.sleep(4)
        result["ok"] = True
    except Exception as e:
        result["error"] = str(e)[:200]
    result["time"] = time.time()
    with open(sys.argv[1], "w") as f:
        json.dump(result, f)
    sys.exit(0 if result["ok"] else 1)
