#!/usr/bin/env python3
"""Trains over an LMDB as users of a framework do: the framework has the loop.

    python3 frameworks.py lightning --data /tmp/example.lmdb

accelerate wraps the loaders, transformers and Lightning build the loop around them. Each
reads two data sets beside the one it trains on: after each epoch it validates on both,
by loaders with workers of their own. The checksum is a chain over the batches that
the model was given, of training and validation, in their order.

Exit status: 77 where the framework is not installed.
"""
import argparse
import hashlib
import importlib
import os
import sys
import tempfile
import time

import data

FRAMEWORKS = ("accelerate", "transformers", "lightning")


def parse(argv):
    p = argparse.ArgumentParser(description="a small model trained by a framework's own loop")
    p.add_argument("framework", choices=FRAMEWORKS)
    p.add_argument("--data", required=True, metavar="PATH", help="the LMDB; made if missing")
    p.add_argument("--records", type=int, default=4000)
    p.add_argument("--record-bytes", type=int, default=data.RECORD_BYTES)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--step-ms", type=float, default=0, help="pretend to compute so long a batch")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args(argv)


def module(framework):
    """Returns the framework's module, or None where it is not installed."""
    names = {"lightning": ("lightning.pytorch", "pytorch_lightning")}.get(framework, (framework,))
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    return None


ARGS = parse(sys.argv[1:]) if __name__ == "__main__" else None  # before torch, which takes seconds to import

import torch
from torch.utils.data import DataLoader, Subset


class Model(torch.nn.Module):
    """One linear layer. It keeps the checksum of what it was given."""

    def __init__(self, step_ms):
        super().__init__()
        self.layer = torch.nn.Linear(data.FEATURES, 1)
        self.step_ms, self.chain, self.began = step_ms, bytes(16), time.monotonic()
        self.seen = self.epoch = 0

    def forward(self, record, digest, features):
        h = hashlib.blake2b(self.chain, digest_size=16)
        for tensor in (record, digest, features):
            h.update(tensor.cpu().numpy().tobytes())
        self.chain = h.digest()
        self.seen += len(record)
        if self.step_ms:
            time.sleep(self.step_ms / 1000)
        return {"loss": (self.layer(features).squeeze(1) - features.mean(1)).square().mean()}

    def epoch_done(self):
        print("epoch %d: %d records, %.0f records/s" % (self.epoch, self.seen, self.seen / (time.monotonic() - self.began)), flush=True)
        self.epoch, self.seen, self.began = self.epoch + 1, 0, time.monotonic()


def named(items):
    """A batch as the frameworks pass it on: arguments by name."""
    return dict(zip(("record", "digest", "features"), torch.utils.data.default_collate(items)))


def accelerate(args, model, train, checks):
    """The loop is the user's, the loaders are accelerate's wrappers."""
    accelerator = module("accelerate").Accelerator(cpu=args.device == "cpu")
    options = dict(batch_size=args.batch, num_workers=args.workers, collate_fn=named, pin_memory=args.device != "cpu")
    loader = DataLoader(train, shuffle=True, persistent_workers=True, **options)
    others = [DataLoader(check, **options) for check in checks]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader, *others = accelerator.prepare(model, optimizer, loader, *others)
    for _ in range(args.epochs):
        for batch in loader:
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for other in others:
                for batch in other:
                    model(**batch)
        accelerator.unwrap_model(model).epoch_done()


def transformers(args, model, train, checks):
    """Trainer has the loop; it makes its loaders of the data sets."""
    hf = module("transformers")

    class Epochs(hf.TrainerCallback):
        def on_epoch_end(self, *_args, **_kwargs):
            model.epoch_done()

    with tempfile.TemporaryDirectory() as place:
        options = hf.TrainingArguments(
            output_dir=place, num_train_epochs=args.epochs, per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=args.batch, dataloader_num_workers=args.workers,
            dataloader_persistent_workers=True, eval_strategy="epoch", prediction_loss_only=True, save_strategy="no",
            remove_unused_columns=False, report_to=[], disable_tqdm=True, seed=args.seed, use_cpu=args.device == "cpu",
            dataloader_pin_memory=args.device != "cpu")
        hf.Trainer(model=model, args=options, data_collator=named, train_dataset=train,
                   eval_dataset={"near": checks[0], "far": checks[1]}, callbacks=[Epochs()]).train()


def lightning(args, model, train, checks):
    """LightningModule and Trainer; it looks at some batches of validation before it trains."""
    pl = module("lightning")

    class Task(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _number):
            return self.model(**batch)["loss"]

        def validation_step(self, batch, _number, dataloader_idx=0):
            self.model(**batch)

        def on_train_epoch_end(self):
            self.model.epoch_done()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    options = dict(batch_size=args.batch, num_workers=args.workers, collate_fn=named, persistent_workers=True,
                   pin_memory=args.device != "cpu")
    trainer = pl.Trainer(max_epochs=args.epochs, accelerator="gpu" if args.device == "cuda" else "cpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Task(), DataLoader(train, shuffle=True, **options), [DataLoader(check, **options) for check in checks])


def main(args):
    if module(args.framework) is None:
        print("skipped: %s lacks %s" % (sys.executable, args.framework))
        return 77
    data.ensure(args.data, args.records, args.record_bytes)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = Model(args.step_ms)
    records = data.Records(args.data, args.records)
    tenth = args.records // 10
    checks = [Subset(records, range(tenth)), Subset(records, range(args.records - tenth, args.records))]
    print("training: pid %d, %d workers" % (os.getpid(), args.workers), flush=True)
    globals()[args.framework](args, model, records, checks)
    print("checksum %s" % model.chain.hex(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(ARGS))
