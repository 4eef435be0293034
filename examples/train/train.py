#!/usr/bin/env python3
"""A small PyTorch trainer over an LMDB: a job whose memory grows as real ones do.

    python3 train.py --data /tmp/example.lmdb --workers 4 --persistent --epochs 4

Each loader worker maps the LMDB and keeps in its RSS what it has read. With
--persistent or --endless the workers live for the whole training, so the sum of
their RSS goes towards workers x size of the data, although the kernel holds the
data once. Other options let it grow in other ways.

The model is one linear layer, it is not the point. The checksum is: a chain over
(epoch, batch, record, content) in the order in which the trainer received them.
It depends on --seed, --epochs, --batch, --epoch-fraction, --plain-file and the
data alone; not on the number or kind of workers, nor on whether one was replaced.

With --checkpoint FILE the run resumes from FILE if it exists; it writes FILE at
the end of each epoch, and at SIGUSR2. Exit status: 0 trained to the end;
99 stopped by SIGUSR2 after writing the checkpoint: start me again; 2 bad usage.
"""
import argparse
import gc
import hashlib
import os
import signal
import sys
import time

import data


def parse(argv):
    p = argparse.ArgumentParser(description="a small PyTorch trainer over an LMDB, made on the spot")
    p.add_argument("--data", required=True, metavar="PATH", help="the LMDB; made if missing")
    p.add_argument("--records", type=int, default=data.RECORDS)
    p.add_argument("--record-bytes", type=int, default=data.RECORD_BYTES)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--epoch-fraction", type=float, default=1.0, help="share of the records in one epoch")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=4, help="loader workers; 0 reads in the trainer")
    p.add_argument("--persistent", action="store_true", help="persistent_workers=True")
    p.add_argument("--endless", action="store_true", help="FastDataLoader: one iterator for life")
    p.add_argument("--device", default="cpu", help="where the model is: cpu or cuda, with pinned memory [cpu]")
    p.add_argument("--start", choices=["fork", "spawn", "forkserver", "default"], default="fork",
                   help="how workers are started; default is what Python does by itself [fork]")
    p.add_argument("--step-ms", type=float, default=0, help="pretend to compute so long a batch")
    p.add_argument("--leak-worker", type=int, default=0, metavar="KB", help="each worker keeps so much a record")
    p.add_argument("--leak-trainer", type=int, default=0, metavar="KB", help="the trainer keeps so much a batch")
    p.add_argument("--garbage", type=int, default=0, metavar="KB",
                   help="the trainer leaves so much a batch in reference cycles, with Python's collector off")
    p.add_argument("--cow", type=int, nargs="?", const=1_000_000, default=0, metavar="N",
                   help="the dataset holds a list of N objects; workers copy its pages by looking (default 1000000)")
    p.add_argument("--in-memory", action="store_true", help="the trainer reads all records into one array first")
    p.add_argument("--plain-file", action="store_true", help="also read a plain file, opened lazily, by seek and read")
    p.add_argument("--checkpoint", metavar="FILE", help="resume from FILE; write it at each epoch and at SIGUSR2")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args(argv)
    if args.workers == 0 and (args.persistent or args.start != "fork"):
        p.error("--persistent and --start need --workers 1 or more")
    if args.persistent and args.endless:
        p.error("--persistent or --endless, not both")
    if args.record_bytes < 4096:
        p.error("--record-bytes must be 4096 or more")
    if args.plain_file and args.workers > 1 and not (args.persistent or args.endless):
        p.error("--plain-file with several workers needs --persistent or --endless: workers forked "
                "after the trainer has opened the file share its offset and read wrong records")
    return args


ARGS = parse(sys.argv[1:]) if __name__ == "__main__" else None  # before torch, which takes seconds to import

import numpy as np
import torch
from torch.utils.data import DataLoader

REQUEUE = 99  # exit status after SIGUSR2


class FastDataLoader(DataLoader):
    """The pattern that keeps one iterator, and so its workers, for life. Its
    batch sampler never ends; an epoch is the next so many batches."""

    def __init__(self, dataset, batches, **kwargs):
        super().__init__(dataset, batch_sampler=batches, **kwargs)
        self.left = len(batches) - batches.skip  # of the first epoch
        self.iterator = super().__iter__()

    def __iter__(self):
        left, self.left = self.left, len(self.batch_sampler)
        for _ in range(left):
            yield next(self.iterator)


class Checkpoint:
    """The state of the training: the next batch, the checksum so far, the model."""

    def __init__(self, path, run):
        self.path, self.run = path, run
        self.requested = False

    def request(self, signum, frame):
        self.requested = True

    def load(self, model):
        if not self.path or not os.path.exists(self.path):
            return 0, 0, bytes(16)
        state = torch.load(self.path)
        if state["run"] != self.run:
            sys.exit("error: %s is of another run: %s\nhint: give the same options, or another --checkpoint"
                     % (self.path, state["run"]))
        model.load_state_dict(state["model"])
        print("resumed from %s at epoch %d, batch %d" % (self.path, state["epoch"], state["batch"]), flush=True)
        return state["epoch"], state["batch"], bytes.fromhex(state["chain"])

    def save(self, model, epoch, batch, chain):
        if not self.path:
            return
        part = "%s.part.%d" % (self.path, os.getpid())
        torch.save({"run": self.run, "model": model.state_dict(),
                    "epoch": epoch, "batch": batch, "chain": chain.hex()}, part)
        os.replace(part, self.path)


def summed_rss():
    """RSS of this process and the sum over its children, in bytes, as a sum-RSS limit counts."""
    children = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as f:
                children += f.read().split()
    except OSError:
        pass

    def rss(pid):
        try:
            with open("/proc/%s/statm" % pid) as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0  # ended meanwhile
    return rss("self"), sum(map(rss, children))


def link(chain, epoch, batch, records, digests, features):
    """The checksum after one more batch. The features come through the loader's
    shared memory, so they show that what arrived is what was read."""
    h = hashlib.blake2b(chain, digest_size=16)
    h.update(np.array([epoch, batch], dtype="<i8").tobytes())
    for tensor in (records, digests, features):
        h.update(tensor.numpy().tobytes())
    return h.digest()


def train(args):
    checkpoint = Checkpoint(args.checkpoint, [args.records, args.record_bytes, args.batch,
                                              args.epoch_fraction, args.seed, args.plain_file])
    if args.checkpoint:
        signal.signal(signal.SIGUSR2, checkpoint.request)
    data.ensure(args.data, args.records, args.record_bytes)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = torch.nn.Linear(data.FEATURES, 1).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epoch, batch, chain = checkpoint.load(model)

    dataset = data.Records(args.data, args.records, leak_kb=args.leak_worker,
                           cow=args.cow, plain=args.plain_file, in_memory=args.in_memory)
    batches = data.EpochBatches(args.records, args.batch, args.epoch_fraction, args.seed,
                                epoch=epoch, skip=batch, endless=args.endless)
    options = {"num_workers": args.workers, "pin_memory": args.device != "cpu"}
    if args.workers:
        options["persistent_workers"] = args.persistent
        if args.start != "default":
            options["multiprocessing_context"] = args.start
    if args.endless:
        loader = FastDataLoader(dataset, batches, **options)
    else:
        loader = DataLoader(dataset, batch_sampler=batches, **options)

    leaked = []
    if args.garbage:
        gc.disable()  # as large trainings do, for the pauses
    print("training: pid %d, %d workers, %d batches an epoch" % (os.getpid(), args.workers, len(batches)), flush=True)
    while epoch < args.epochs:
        began, seen, loss, rss = time.monotonic(), 0, torch.zeros(()), summed_rss()
        for records, digests, features in loader:
            inputs = features.to(args.device, non_blocking=True)
            loss = (model(inputs).squeeze(1) - inputs.mean(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            chain = link(chain, epoch, batch, records, digests, features)
            batch += 1
            seen += len(records)
            if batch == len(batches):  # workers that live for one epoch are still there
                rss = summed_rss()
            if args.step_ms:
                time.sleep(args.step_ms / 1000)
            if args.garbage:
                cycle = [b"\x55" * (args.garbage * 1024)]
                cycle.append(cycle)
            if args.leak_trainer:
                leaked.append(b"\x55" * (args.leak_trainer * 1024))
            if checkpoint.requested:
                checkpoint.save(model, epoch, batch, chain)
                print("checkpoint at epoch %d, batch %d: stopping" % (epoch, batch), flush=True)
                return REQUEUE
        print("epoch %d: %d records, %.0f records/s, loss %.4f, RSS %.0f MiB + children %.0f MiB, checksum so far %s"
              % (epoch, seen, seen / (time.monotonic() - began), loss.item(),
                 rss[0] / 2**20, rss[1] / 2**20, chain.hex()), flush=True)
        if args.plain_file:  # the main process looks into the file too
            peek = dataset.read_plain(epoch % args.records)
            chain = hashlib.blake2b(chain + peek, digest_size=16).digest()
        epoch, batch = epoch + 1, 0
        checkpoint.save(model, epoch, batch, chain)
    print("checksum %s" % chain.hex(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(train(ARGS))
