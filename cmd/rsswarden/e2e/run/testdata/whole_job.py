# A training for so many seconds from its first batch on, with three persistent workers:
# whole_job.py SHAPE FILE SECONDS. FILE is an LMDB of 120 MiB, made where it is missing.
# Shapes: "random", "random, slow", "in order", "leak", "copies".
import os
import sys
import time

import lmdb
import torch
from torch.utils.data import DataLoader

SHAPE, FILE, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
RECORDS, SIZE, BATCH = 7680, 16000, 64


class Records:
    def __init__(self):
        self.env = None
        self.kept = []
        # An object an entry: looking at one writes to its page.
        self.entries = [("clip-%d" % i, i) for i in range(2_000_000 if SHAPE == "copies" else 0)]

    def __len__(self):
        return RECORDS

    def __getitem__(self, record):
        if SHAPE == "leak":
            self.kept.append(bytearray(b"x" * 10_000))
        elif SHAPE == "copies":
            share = len(self.entries) // RECORDS
            sum(number for _, number in self.entries[record * share:(record + 1) * share])
        else:
            if self.env is None:
                self.env = lmdb.open(FILE, subdir=False, readonly=True, lock=False, readahead=False)
            with self.env.begin(buffers=True) as txn:
                sum(bytes(txn.get(b"%d" % record))[::4096])
        return record


if not os.path.exists(FILE):
    env = lmdb.open(FILE + ".part", subdir=False, map_size=1 << 30, lock=False)
    for first in range(0, RECORDS, 256):
        with env.begin(write=True) as txn:
            for record in range(first, first + 256):
                txn.put(b"%d" % record, os.urandom(SIZE))
    env.close()
    os.rename(FILE + ".part", FILE)
if SECONDS == 0:
    sys.exit(0)
torch.set_num_threads(1)
loader = DataLoader(Records(), BATCH, shuffle=SHAPE != "in order", num_workers=3, persistent_workers=True)
end = None
while True:
    for batch in loader:
        end = end or time.monotonic() + SECONDS
        if time.monotonic() > end:
            os._exit(0)  # the workers see it and end
        time.sleep(0.4 if SHAPE == "random, slow" else 0.06)
