# Ends an iterator while the modules of the hook are being cleared.
import os, torch

if __name__ == "__main__": # a fork server imports this too
    torch.set_num_threads(1)
    batches = iter(torch.utils.data.DataLoader(range(8), 2, num_workers=2))
    next(batches)
    workers = [w.pid for w in batches._workers]
    import _rsswarden.patch
    assert batches._rsswarden.why is None, batches._rsswarden.why
    for name in list(vars(_rsswarden.patch)): vars(_rsswarden.patch)[name] = None
    del batches
    print([pid for pid in workers if os.path.exists("/proc/%d" % pid)])
