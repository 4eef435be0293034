"""A trainer of 500 MiB of its own, with two workers that leak until the kernel kills a process,
which a surviving trainer writes down. They wait until their own oom_score_adj is as wanted: a
worker may leak faster than we look."""
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch

class Leak(torch.utils.data.Dataset):
    kept = []
    def __len__(self):
        return 100000
    def __getitem__(self, i):
        end = time.monotonic() + 60
        while int(open("/proc/self/oom_score_adj").read()) < int(sys.argv[1]) and time.monotonic() < end:
            time.sleep(0.02)
        self.kept.append(b"x" * (4 << 20))
        return i

try:
    # Workers that are forked have all that the trainer had, and are larger with what they add.
    batches = iter(torch.utils.data.DataLoader(Leak(), batch_size=1, num_workers=2, prefetch_factor=2))
    model = b"m" * (500 << 20)
    for batch in batches:
        pass
except (RuntimeError, OSError, EOFError) as e: # a batch may be on its way from the worker that was killed
    with open(sys.argv[2], "w") as f:
        json.dump({"type": type(e).__name__, "error": str(e), "model": len(model)}, f)
    sys.exit(3)
