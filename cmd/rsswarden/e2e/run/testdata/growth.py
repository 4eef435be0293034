"""growth.py SHAPE SEED LIMIT SECONDS END DIR: has its memory, with that of its children, grow to LIMIT
bytes in SECONDS, or flatten below it, in one of several ways, and ends after END seconds or
shortly after it has reached LIMIT. What it grows is its own, or pages of an LMDB in DIR."""
import math, mmap, os, random, sys, time

shape, seed, limit, takes, end, where = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), sys.argv[6]
rng = random.Random(seed)
began = time.monotonic()
PAGE = 4096


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * PAGE


class Anonymous:
    """Own memory of a size that is set."""

    def __init__(self):
        self.map = mmap.mmap(-1, 2 * limit, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_NOHUGEPAGE)
        self.have = 0

    def set(self, size):
        size = max(0, int(size)) // PAGE * PAGE
        for at in range(self.have, size, PAGE):
            self.map[at] = 1
        if size < self.have:
            self.map.madvise(mmap.MADV_DONTNEED, size, self.have - size)
        self.have = size


walk = [0.0, 0.0]


def walked(x):
    walk[1] += rng.gauss(0, 0.05 * math.sqrt(max(x - walk[0], 0)))
    walk[0] = x
    return walk[1]


def level(to, tau):
    return lambda x: 0.05 + (to - 0.05) * (1 - math.exp(-x / tau)) + rng.gauss(0, 0.002)


# What is used at x, the part of SECONDS that has gone by, as a part of LIMIT.
shapes = {
    "steady": lambda x: 0.1 + 0.9 * x,
    "noisy": lambda x: 0.1 + 0.9 * x + rng.gauss(0, 0.012),
    "steps": lambda x: 0.1 + 0.9 / 13 * math.floor(13 * x),
    "slow steps": lambda x: 0.1 + 0.9 / 8 * math.floor(8 * x) + rng.gauss(0, 0.002),
    "epochs that rest": lambda x: 0.1 + 0.9 / 9 * (math.floor(9 * x) + min(1, 3 * (9 * x % 1))),
    "accelerating, square": lambda x: 0.1 + 0.9 * x * x,
    "accelerating, exponential": lambda x: 0.12 * math.exp(2.12 * x),
    "burst, then steady": lambda x: 0.35 * min(1, 40 * x) + 0.65 * x,
    "slow, then fast": lambda x: 0.1 + 0.5 * x + 0.62 * max(0, x - 0.35),
    "fast, then slow": lambda x: 0.1 + 1.6 * min(x, 0.2) + 0.725 * max(0, x - 0.2),
    "one jump": lambda x: 0.08 + 0.68 * x + (0.24 if x > 0.2 else 0),
    "leak with garbage": lambda x: 0.1 + 0.82 * x + 0.08 * (16 * x % 1),
    "dips": lambda x: 0.1 + 0.9 * x - (0.1 if rng.random() < 0.08 else 0),
    "random walk": lambda x: 0.1 + 0.9 * x + walked(x),
    "cache, above": level(1.35, 0.76),
    "cache, below": level(0.75 + 0.04 * (seed % 4), 0.4),
    "noisy cache, below": lambda x: level(0.8, 0.4)(x) + rng.gauss(0, 0.004),
    "burst, then flat": lambda x: 0.75 * min(1, 20 * x) + rng.gauss(0, 0.003),
    "garbage, no leak": lambda x: 0.55 + 0.25 * (14 * x % 1),
}


def own():
    memory, base = Anonymous(), resident()
    while True:
        t = time.monotonic() - began
        used = shapes[shape](t / takes) * limit
        memory.set(used - base)
        if t > end or used > 1.03 * limit:
            return
        time.sleep(0.5)


WORKERS, RECORD = 4, 1 << 16
# Of each LMDB shape: all that its workers can map with what they have at first, as a part of
# LIMIT; the order; own memory that grows in SECONDS beside.
databases = {
    "LMDB at random, above": (1.35, "random", 0),
    "LMDB in epochs, above": (1.45, "epochs", 0),
    "LMDB in order, above": (1.4, "order", 0),
    "LMDB at random, with a leak": (0.85, "random", 0.35),
    "LMDB at random, below": (0.78 + 0.04 * (seed % 4), "random", 0),
    "LMDB in epochs, below": (0.8 + 0.04 * (seed % 4), "epochs", 0),
    "LMDB in order, below": (0.8 + 0.04 * (seed % 4), "order", 0),
}


def order(kind, records, worker):
    """Yields the records that a worker reads, in their order."""
    shared = random.Random(seed)
    mine = random.Random(seed * 100 + worker)
    while True:
        if kind == "random":
            yield mine.randrange(records)
        elif kind == "order":
            yield from range(records)
        else:
            epoch = list(range(records))
            shared.shuffle(epoch)
            yield from epoch[worker::WORKERS]


def database():
    import lmdb

    most, kind, leak = databases[shape]
    base = (WORKERS + 1) * 10 << 20  # about what they have before they read
    records = int((most * limit - base) / WORKERS / RECORD)
    path = os.path.join(where, "data.mdb")
    env = lmdb.open(path, subdir=False, map_size=1 << 40, lock=False)
    with env.begin(write=True) as txn:
        for i in range(records):
            txn.put(b"%08d" % i, bytes(RECORD - 100), append=True)
    env.close()
    # Out of page cache: what was written is there in pieces of up to 2 MiB, which are mapped whole.
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    # How many records a second a worker reads, for LIMIT in SECONDS; below it, in half of that
    # three quarters of what there is are read.
    part = (limit - base - leak * limit) / (most * limit - base)
    if part > 1 or leak:
        part = 0.75
    # A fault maps what the others have read around it as well: fewer reads are enough than
    # coverage by chance would take, by as much as was measured.
    fewer = {"random": 0.67, "epochs": 0.55}
    reads = records * (part if kind == "order" else -fewer[kind] * math.log(1 - part))
    pace = reads / (takes if part != 0.75 or leak else takes / 2)
    parent = os.getpid()
    for worker in range(WORKERS):
        if os.fork() == 0:
            env = lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False)
            n, opened = 0, time.monotonic()
            for record in order(kind, records, worker):
                while n > pace * (time.monotonic() - opened):
                    if os.getppid() != parent:
                        os._exit(0)
                    time.sleep(0.2)
                with env.begin(buffers=True) as txn:
                    value = txn.get(b"%08d" % record)
                    sum(value[at] for at in range(0, len(value), PAGE))
                n += 1
    memory = Anonymous()
    while time.monotonic() - began < end:
        memory.set(leak * limit * (time.monotonic() - began) / takes)
        time.sleep(0.5)


if shape in shapes:
    own()
else:
    database()
