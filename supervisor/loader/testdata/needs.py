# Loads batches, after it has removed the directory sys.argv[1], and says what of the hook is there.
import os, shutil, sys
import torch
torch.set_num_threads(1)
def has(): return sorted(name for name in sys.modules if name.startswith("_rsswarden."))
if __name__ == "__main__":
    print(has())
    if sys.argv[1:]: shutil.rmtree(sys.argv[1])
    print(sum(int(batch.sum()) for batch in torch.utils.data.DataLoader(range(8), 2, num_workers=2)))
    print("_rsswarden.recycle" in has())
