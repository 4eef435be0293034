"""A training with Accelerate that saves its state when it is asked to by a signal:

    rsswarden run --at 93%:signal=USR2 -- accelerate launch train.py

rsswarden sends it to every rank and not to the launcher, and all of them save after the
same batch. Without the signal, with rsswarden or without, nothing is saved.
"""
import argparse
import hashlib
import os
import signal
import time

import torch
from accelerate import Accelerator, InitProcessGroupKwargs


class Records(torch.utils.data.Dataset):
    """Record i is sixteen numbers that follow from i. A reader keeps leak KB, by mistake."""

    def __init__(self, records, leak):
        self.records, self.leak, self.kept = records, leak, []

    def __len__(self):
        return self.records

    def __getitem__(self, i):
        self.kept.append(b"\x55" * (self.leak << 10))
        return i, torch.randn(16, generator=torch.Generator().manual_seed(i))


asked = False


def ask(number, frame):
    global asked
    asked = True
    os.write(1, b"process %d: asked\n" % os.getpid())


def main():
    global asked
    p = argparse.ArgumentParser()
    p.add_argument("--records", type=int, default=1600)
    p.add_argument("--workers", type=int, default=2, help="loader workers of each rank")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--leak", type=int, default=0, metavar="KB", help="each record leaks so much")
    p.add_argument("--step-ms", type=float, default=0, help="pretend that a step takes so long")
    p.add_argument("--backend", help="of torch.distributed, where Accelerate's choice will not do")
    args = p.parse_args()
    signal.signal(signal.SIGUSR2, ask)
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend=args.backend)] if args.backend else [])
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 1)
    loader = torch.utils.data.DataLoader(
        Records(args.records, args.leak), batch_size=8, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    rank, data = accelerator.process_index, hashlib.blake2b(digest_size=16)
    print("rank %d of %d: process %d\n" % (rank, accelerator.num_processes, os.getpid()), end="", flush=True)
    for epoch in range(args.epochs):
        for records, numbers in loader:
            optimizer.zero_grad()
            accelerator.backward(model(numbers).square().mean())
            optimizer.step()
            data.update(records.numpy().tobytes() + numbers.numpy().tobytes())
            time.sleep(args.step_ms / 1000)
            if asked:
                asked = False
                accelerator.set_trigger()
            if accelerator.check_trigger():  # that any rank was asked
                accelerator.save_state("asked")
    print("rank %d: data %s\n" % (rank, data.hexdigest()), end="", flush=True)
    accelerator.end_training()


if __name__ == "__main__":  # workers import this file where they are not forked, as on Python 3.14
    main()
