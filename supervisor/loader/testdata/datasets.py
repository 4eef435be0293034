"""The datasets of the tests' trainer: one file of records, read in the ways people read theirs.

Record i begins with i as eight bytes and goes on with bytes that follow from i.
An item is the record's number, the sum of its bytes, the PID that read it, a
random draw, and what that process has mapped.
"""
import mmap
import os
import random
import shutil
import tempfile
import threading
import time
from multiprocessing import util

import numpy
import torch


class Records(torch.utils.data.Dataset):
    """Maps the file read-only; opened in the trainer, as LMDB users do."""

    def __init__(self, path, size, fail=(), slow=0.0):
        self.slow = slow
        self.path, self.size, self.fail = path, size, frozenset(fail)
        self.count = os.path.getsize(path) // size
        self.map = None
        self.open()

    def open(self):
        with open(self.path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    def __getstate__(self):
        state = dict(self.__dict__)
        state["map"] = None
        return state

    def __len__(self):
        return self.count

    def read(self, index):
        if self.map is None:
            self.open()
        return self.map[index * self.size:(index + 1) * self.size]

    def __getitem__(self, index):
        if self.slow:
            time.sleep(self.slow)
        if index in self.fail:
            raise ValueError("record %d" % index)
        raw = numpy.frombuffer(self.read(index), numpy.uint8)
        record = int(raw[:8].view(numpy.int64)[0])
        draws = random.getrandbits(60), int(torch.randint(1 << 60, ()))
        return record, int(raw.sum(dtype=numpy.int64)), os.getpid(), draws[0] ^ draws[1], shared()


class Plain(Records):
    """Reads a file that is opened at the first use, and has one offset."""

    def open(self):
        self.file = None

    def __getstate__(self):
        state = super().__getstate__()
        state["file"] = None
        return state

    def read(self, index):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        self.file.seek(index * self.size)
        time.sleep(0.0002)
        return self.file.read(self.size).ljust(self.size, b"\0")


class Memmap(Records):
    """Reads an array of numpy's over the file."""

    def open(self):
        self.map = numpy.memmap(self.path, numpy.uint8, mode="r", shape=(self.count, self.size))

    def read(self, index):
        if self.map is None:
            self.open()
        return self.map[index]


class H5(Plain):
    """Reads a data set of HDF5 in chunks, through the library's own cache; opened at the first use."""

    def __init__(self, path, size, *rest):
        super().__init__(path, size, *rest)
        import h5py

        self.made = os.environ["STARTED"] + ".h5"
        if not os.path.exists(self.made):
            with h5py.File(self.made, "w") as file:
                rows = numpy.fromfile(path, numpy.uint8, self.count * size).reshape(self.count, size)
                file.create_dataset("records", data=rows, chunks=(4, size))

    def read(self, index):
        if self.file is None:
            import h5py

            self.file = h5py.File(self.made, "r")
        return self.file["records"][index]


class Lmdb(Plain):
    """Reads a database of LMDB that each process opens at its first use."""

    def __init__(self, path, size, *rest):
        super().__init__(path, size, *rest)
        import lmdb

        self.made = os.environ["STARTED"] + ".lmdb"
        if not os.path.exists(self.made):
            with lmdb.open(self.made, map_size=1 << 30, sync=False) as env:
                with env.begin(write=True) as write, open(path, "rb") as file:
                    for index in range(self.count):
                        write.put(b"%08d" % index, file.read(size), append=True)

    def read(self, index):
        if self.file is None:
            import lmdb

            self.file = lmdb.open(self.made, readonly=True, lock=False, readahead=False)
        with self.file.begin(buffers=False) as read:
            return read.get(b"%08d" % index)


class Nested(Records):
    """Reads each record through a loader of its own that has no workers."""

    def __getitem__(self, index):
        inner = torch.utils.data.DataLoader(torch.utils.data.Subset(Item(self), [index]), batch_size=None)
        item, = inner
        return item


class Item(torch.utils.data.Dataset):
    def __init__(self, records):
        self.records = records

    def __getitem__(self, index):
        return Records.__getitem__(self.records, index)


class Leaky(Records):
    def __getitem__(self, index):
        self.__dict__.setdefault("kept", []).append(b"x" * 50000)
        return super().__getitem__(index)


class Heavy(Records):
    """Adds bytes to each record, which go through the pipe themselves: a batch is several times larger than that."""

    def __getitem__(self, index):
        return (*super().__getitem__(index), bytes([index % 251]) * 22000)


class Hoard(Records):
    """Leaks 2 MiB a record."""

    kept = []

    def __getitem__(self, index):
        self.kept.append(b"x" * (2 << 20))
        return super().__getitem__(index)


class Named(Records):
    """Gives the names of files that live as long as the worker does, every other one late."""

    def __getitem__(self, index):
        if not hasattr(self, "folder"):
            self.folder = tempfile.mkdtemp(dir=os.path.dirname(os.environ["STARTED"]))
            util.Finalize(None, shutil.rmtree, (self.folder,), exitpriority=20)
        if index // 16 % 2 == 0:
            time.sleep(0.005)
        path = os.path.join(self.folder, "%06d" % index)
        with open(path, "w"):
            pass
        return (*super().__getitem__(index), [ord(c) for c in path])


class Threaded(Records):
    """Keeps a thread in each worker, which it does not end."""

    def __getitem__(self, index):
        if not hasattr(self, "thread"):
            self.thread = threading.Thread(target=time.sleep, args=(1e6,))
            self.thread.start()
        return super().__getitem__(index)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, records):
        self.records = records

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, len(self.records), step):
            yield self.records[index]


KINDS = {"mmap": Records, "plain": Plain, "memmap": Memmap, "h5py": H5, "lmdb": Lmdb, "nested": Nested,
         "heavy": Heavy, "hoard": Hoard, "leaky": Leaky, "named": Named, "threaded": Threaded, "stream": Records}


def shared():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[2]) * 4096
