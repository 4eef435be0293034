"""The data of the example trainer: an LMDB made on the spot, and a dataset over it.

The content follows from the number of a record alone, so two runs can be
compared by a checksum. Run as a program it only makes the data:

    python3 data.py PATH [--records N] [--record-bytes B]
"""
import argparse
import hashlib
import os
import subprocess
import sys

import lmdb
import numpy as np

RECORDS = 12000
RECORD_BYTES = 120_000  # 12000 x 120 kB: about 1.4 GB
PLAIN_BYTES = 4096      # bytes a record has in the plain file
FEATURES = 32           # inputs of the model


def content(record, size, stream=0):
    """The bytes of a record: its number, then noise. stream 1 is the plain file's."""
    noise = np.random.Generator(np.random.SFC64([record, stream]))
    return record.to_bytes(8, "little") + noise.bytes(size - 8)


def key(record):
    return b"%08d" % record


def plain_path(path):
    return path + ".plain"


def make(path, records, size):
    """Writes the LMDB and the plain file beside it, each renamed into place."""
    part = "%s.part.%d" % (path, os.getpid())
    try:
        with open(part, "wb") as f:
            for i in range(records):
                f.write(content(i, PLAIN_BYTES, stream=1))
        os.replace(part, plain_path(path))
        pages = records * (size // 4096 + 3) + 1024
        env = lmdb.open(part, map_size=pages * 4096, subdir=False, lock=False, sync=False)
        for first in range(0, records, 500):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 500, records)):
                    txn.put(key(i), content(i, size), append=True)
        with env.begin(write=True) as txn:
            txn.put(b"shape", b"%d %d" % (records, size))
        env.sync(True)
        env.close()
        os.replace(part, path)  # the LMDB last: where it is, all is
    finally:
        if os.path.exists(part):
            os.unlink(part)


def ensure(path, records, size):
    """Makes the data if PATH is missing. In a process of its own: what making
    costs in memory ends with it, and is not carried into the training."""
    if not os.path.exists(path):
        made = subprocess.run([sys.executable, os.path.abspath(__file__), path,
                               "--records", str(records), "--record-bytes", str(size)])
        if made.returncode:
            sys.exit("error: cannot make %s\nhint: it needs %d MB in a directory you can write to"
                     % (path, records * (size + PLAIN_BYTES) // 10**6))
    env = open_lmdb(path)
    with env.begin() as txn:
        shape = txn.get(b"shape")
    env.close()
    if shape != b"%d %d" % (records, size):
        sys.exit("error: %s holds %s (records, bytes a record), not %d %d\n"
                 "hint: remove it, or give the --records and --record-bytes it was made with"
                 % (path, (shape or b"something else").decode(), records, size))


def open_lmdb(path):
    # readahead=False as for any set larger than memory; lock=False: there is no writer.
    return lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False)


def read_all(path, records):
    """All records as one array, a row each."""
    env = open_lmdb(path)
    with env.begin(buffers=True) as txn:
        first = np.frombuffer(txn.get(key(0)), np.uint8)
        rows = np.empty((records, len(first)), np.uint8)
        for record in range(records):
            rows[record] = np.frombuffer(txn.get(key(record)), np.uint8)
        del first
    env.close()
    return rows


class Records:
    """A map-style dataset. Each item: record number, digest of all its bytes, features.

    Each process opens the LMDB for itself, at its first record. Every page a
    worker reads stays in the worker's map and counts in its RSS: that is the
    growth this example is about.
    """

    def __init__(self, path, records, leak_kb=0, cow=0, plain=False, in_memory=False):
        self.path, self.records, self.leak_kb = path, records, leak_kb
        self.plain = plain
        self.plain_file = None
        self.env = None
        self.env_pid = None
        self.rows = read_all(path, records) if in_memory else None
        self.leaked = []
        # One object an entry, each with its own reference count in its own page.
        self.entries = [("clip-%d" % i, i) for i in range(cow)]

    def __len__(self):
        return self.records

    def __getstate__(self):  # for spawned workers
        return dict(self.__dict__, env=None, env_pid=None, plain_file=None)

    def __getitem__(self, record):
        if self.rows is not None:
            digest, features = self.look(self.rows[record])
        else:
            if self.env_pid != os.getpid():
                self.env, self.env_pid = open_lmdb(self.path), os.getpid()
            with self.env.begin(buffers=True) as txn:
                digest, features = self.look(txn.get(key(record)))
        if self.plain:
            digest.update(self.read_plain(record))
        if self.leak_kb:
            self.leaked.append(b"\x55" * (self.leak_kb * 1024))
        if self.entries:
            self.touch(record)
        number = int.from_bytes(digest.digest(), "little", signed=True)
        return record, number, features.astype(np.float32) / 255

    @staticmethod
    def look(raw):
        """Digest and features of a record. It keeps no view of raw, which may be the map's."""
        pixels = np.frombuffer(raw, np.uint8)[:4096]
        features = pixels[:len(pixels) // FEATURES * FEATURES].reshape(FEATURES, -1).mean(1)
        return hashlib.blake2b(raw, digest_size=8), features

    def read_plain(self, record):
        """Opened at the first read and kept, as much user code does. A process
        forked after that shares the descriptor, and with it the file offset."""
        if self.plain_file is None:
            self.plain_file = open(plain_path(self.path), "rb")
        self.plain_file.seek(record * PLAIN_BYTES)
        return self.plain_file.read(PLAIN_BYTES)

    def touch(self, record):
        """Looks at some entries. Looking counts references, counting writes, and
        each page written is copied: memory shared since the fork becomes private."""
        share = max(1, len(self.entries) // 500)
        first = record * share % len(self.entries)
        return sum(number for _, number in self.entries[first:first + share])


class EpochBatches:
    """A batch sampler: in each epoch a fresh random part of the records. The
    order follows from seed and epoch alone, so a resumed run goes on in it."""

    def __init__(self, records, batch, fraction, seed, epoch=0, skip=0, endless=False):
        self.records, self.batch, self.seed = records, batch, seed
        self.count = max(1, int(records * fraction))
        self.epoch, self.skip, self.endless = epoch, skip, endless

    def __len__(self):
        """Batches in a whole epoch."""
        return -(-self.count // self.batch)

    def __iter__(self):
        while True:
            epoch, skip = self.epoch, self.skip
            self.epoch, self.skip = epoch + 1, 0
            order = np.random.default_rng([self.seed, epoch]).permutation(self.records)[:self.count]
            for b in range(skip, len(self)):
                yield order[b * self.batch:(b + 1) * self.batch].tolist()
            if not self.endless:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="make the LMDB of the example trainer")
    parser.add_argument("path")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--record-bytes", type=int, default=RECORD_BYTES)
    args = parser.parse_args()
    make(args.path, args.records, args.record_bytes)
