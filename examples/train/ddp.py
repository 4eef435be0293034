#!/usr/bin/env python3
"""The example trainer on several ranks: DistributedDataParallel over gloo, no GPU needed.
With --device cuda the model of each rank is on a GPU of its own, over NCCL; with fewer
GPUs than ranks over gloo, all on the first.

    torchrun --nproc_per_node 2 ddp.py --data /tmp/example.lmdb --workers 2 --epochs 4

Each rank reads its share of the LMDB with loader workers of its own, so the sum of
their RSS goes towards ranks x workers x size of the data. Put rsswarden before
torchrun, once: it watches all ranks, and a limit of the node or the job is shared
by them.

    rsswarden run --at '95%:signal=USR2' -- torchrun ... ddp.py --checkpoint FILE

At SIGUSR2, to one rank or to all, every rank finishes its batch, rank 0 writes the
checkpoint, and the training goes on; it resumes from FILE if it exists.

The checksum at the end is over all that every rank received, in order, and over
the model that all have then. It depends on the data, --seed, --epochs, --batch and
the number of ranks alone.
"""
import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import data


class Rest(DistributedSampler):
    """A rank's share of an epoch, without what was trained before a resume."""

    skip = 0

    def __iter__(self):
        skip, self.skip = self.skip, 0
        return iter(list(super().__iter__())[skip:])


class Training:
    def __init__(self, args):
        self.args, self.rank = args, dist.get_rank()
        self.epoch, self.batch, self.chain = 0, 0, bytes(16)
        self.requested = False
        torch.manual_seed(args.seed)
        self.device = args.device
        if nccl(args):
            self.device = "cuda:%s" % os.environ["LOCAL_RANK"]
            torch.cuda.set_device(self.device)
        self.model = DistributedDataParallel(torch.nn.Linear(data.FEATURES, 1).to(self.device))

    def say(self, text):
        print("rank %d: %s" % (self.rank, text), flush=True)

    def request(self, signum, frame):
        self.requested = True

    def save(self):
        chains = [None] * dist.get_world_size()
        dist.all_gather_object(chains, self.chain.hex())
        if self.rank == 0 and self.args.checkpoint:
            part = self.args.checkpoint + ".part"
            torch.save({"model": self.model.module.state_dict(), "epoch": self.epoch, "batch": self.batch,
                        "chains": chains}, part)
            os.replace(part, self.args.checkpoint)
        return chains

    def load(self):
        if not self.args.checkpoint or not os.path.exists(self.args.checkpoint):
            return
        state = torch.load(self.args.checkpoint)
        if len(state["chains"]) != dist.get_world_size():
            sys.exit("error: %s is of %d ranks\nhint: start as many, or give another --checkpoint"
                     % (self.args.checkpoint, len(state["chains"])))
        self.model.module.load_state_dict(state["model"])
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.chain = bytes.fromhex(state["chains"][self.rank])
        self.say("resumed at epoch %d, batch %d" % (self.epoch, self.batch))

    def asked(self):
        """Says whether any rank was asked for a checkpoint: all must agree, or some would wait for ever."""
        if self.requested:
            self.say("got SIGUSR2 at epoch %d, batch %d" % (self.epoch, self.batch))
        flag = torch.tensor([self.requested], dtype=torch.uint8, device=self.device)
        self.requested = False
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def run(self):
        args = self.args
        dataset = data.Records(args.data, args.records, leak_kb=args.leak_worker)
        sampler = Rest(dataset, seed=args.seed)
        loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler, num_workers=args.workers,
                            persistent_workers=args.workers > 0, pin_memory=args.device != "cpu")
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.load()
        self.say("pid %d, %d workers" % (os.getpid(), args.workers))
        while self.epoch < args.epochs:
            sampler.set_epoch(self.epoch)
            sampler.skip = self.batch * args.batch
            seen = torch.zeros(1, device=self.device)
            for records, digests, features in loader:
                optimizer.zero_grad()
                inputs = features.to(self.device, non_blocking=True)
                (self.model(inputs).squeeze(1) - inputs.mean(1)).square().mean().backward()
                optimizer.step()
                h = hashlib.blake2b(self.chain, digest_size=16)
                for tensor in (records, digests, features):
                    h.update(tensor.numpy().tobytes())
                self.chain = h.digest()
                self.batch += 1
                seen += len(records)
                if args.step_ms:
                    time.sleep(args.step_ms / 1000)
                if self.asked():
                    self.save()
            dist.all_reduce(seen)
            self.epoch, self.batch = self.epoch + 1, 0
            self.save()
            if self.rank == 0:
                print("epoch %d: %d records" % (self.epoch - 1, seen), flush=True)
        self.finish()

    def finish(self):
        h = hashlib.blake2b(digest_size=16)
        for parameter in self.model.parameters():
            h.update(parameter.detach().cpu().numpy().tobytes())
        models = [None] * dist.get_world_size()
        dist.all_gather_object(models, h.hexdigest())
        if len(set(models)) != 1:
            sys.exit("error: the ranks' models differ: %s" % models)
        chains = self.save()
        if self.rank == 0:
            print("checksum %s" % hashlib.blake2b("".join(chains + models).encode(), digest_size=16).hexdigest())


def nccl(args):
    """Says whether each rank of this node has a GPU of its own, which NCCL wants."""
    return args.device == "cuda" and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, metavar="PATH", help="LMDB; made if missing")
    p.add_argument("--records", type=int, default=data.RECORDS)
    p.add_argument("--record-bytes", type=int, default=data.RECORD_BYTES)
    p.add_argument("--workers", type=int, default=2, help="loader workers of each rank")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cpu", help="where the model is: cpu or cuda, with pinned memory [cpu]")
    p.add_argument("--leak-worker", type=int, default=0, metavar="KB", help="each record leaks so much")
    p.add_argument("--step-ms", type=float, default=0, help="pretend that a step takes so long")
    p.add_argument("--checkpoint", metavar="FILE")
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if nccl(args) else "gloo")
    training = Training(args)
    signal.signal(signal.SIGUSR2, training.request)
    if training.rank == 0:
        data.ensure(args.data, args.records, args.record_bytes)
    dist.barrier()
    training.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
