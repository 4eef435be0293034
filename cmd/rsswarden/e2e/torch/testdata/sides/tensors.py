"""Trains in a process of its own, on a list of small tensors, as users have reported.

tensors.py METHOD STRATEGY COUNT [EVENTS] FILE: how the process is started, how tensors are
shared, how many there are, and where to write when and how it failed. With EVENTS it waits
near the limit for a warning: a busy node leaves the watcher behind.
"""
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.multiprocessing as mp


class Warned:
    """Is sent once a file of events has a decision about mappings."""

    def __init__(self, events):
        self.events = events

    def __reduce__(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(self.events) as file:
                if any('"event":"decision"' in line and '"limit":"maps"' in line for line in file):
                    break
            time.sleep(0.1)
        return int, ()


class Tensors(torch.utils.data.Dataset):
    def __init__(self, n, events):
        self.tensors = [torch.full((80,), float(i)) for i in range(n)]
        if events:
            with open("/proc/sys/vm/max_map_count") as file:
                self.tensors.insert(int(file.read()) * 9 // 10, Warned(events[0]))

    def __len__(self):
        return len(self.tensors)

    def __getitem__(self, i):
        return self.tensors[i]


def train(strategy, n, events, file):
    torch.multiprocessing.set_sharing_strategy(strategy)
    result = {"ok": False}
    try:
        loader = torch.utils.data.DataLoader(Tensors(n, events), batch_size=1, num_workers=1)
        batch = next(iter(loader))
        result["ok"] = float(batch.sum()) == 0.0
    except Exception as e:
        result["error"] = str(e)[:200]
    result["time"] = time.time()
    with open(file, "w") as f:
        json.dump(result, f)
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    method, strategy, n, *events, file = sys.argv[1:]
    p = mp.get_context(method).Process(target=train, args=(strategy, int(n), events, file))
    p.start()
    p.join()
    sys.exit(p.exitcode)
