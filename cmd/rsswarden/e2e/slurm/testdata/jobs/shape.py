"""Uses memory in the shape, of the size in MiB, that its arguments name; its seed makes that up to
3 % more or less, as real jobs differ."""
import mmap, os, random, signal, sys, time

shape, size, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
size *= rng.uniform(0.97, 1.03)
print("size %.0f MiB" % size, flush=True)

class Held:
    def __init__(self):
        self.parts = []
    def to(self, mib):       # in parts of 1 MiB, so that it can shrink
        while len(self.parts) > mib:
            self.parts.pop().close()
        while len(self.parts) < mib:
            b = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for i in range(0, len(b), 4096): b[i] = 1
            self.parts.append(b)

# On a busy machine all takes longer, and nothing less memory.
held = Held()
def over(seconds, size_at):
    for n in range(20 * seconds):
        held.to(size * size_at(n / (20 * seconds)))
        time.sleep(0.05)

if shape == "plateau":
    over(8, lambda part: 1)
elif shape == "ramp":
    over(10, lambda part: part)
    over(3, lambda part: 1)
elif shape == "sawtooth":
    over(15, lambda part: 0.3 + 0.7 * min(1, 1.6 * (3 * part % 1)))
elif shape == "spike":
    over(12, lambda part: 1 if 0.5 < part < 0.75 else 0.4)
elif shape == "stairs":
    over(15, lambda part: 0.2 * (1 + int(5 * part)))
elif shape == "pool":
    pids = []
    for n in range(4):
        pid = os.fork()
        if pid == 0:
            size /= 4
            over(8, lambda part: min(1, 2 * part))
            os._exit(0)
        pids.append(pid)
    for pid in pids: os.waitpid(pid, 0)
elif shape == "cache":       # beside pages of a file three times the size
    with open("cache", "wb") as f:
        for n in range(int(3 * size)): f.write(bytes(1 << 20))
    over(4, lambda part: part)
    with open("cache", "rb") as f:
        while f.read(1 << 20): pass
    over(4, lambda part: 1)
    os.remove("cache")
elif shape == "heap":        # of objects that come and go
    objects, had = [], 0
    def add(at):
        global had
        b = bytes([seed % 255 + 1]) * rng.randint(2000, 60000)
        had += len(b) - len(objects[at])
        objects[at] = b
    for n in range(10):
        while had < size * 2**20 * (n + 1) / 10:
            objects.append(b"")
            add(-1)
        for _ in range(1000): add(rng.randrange(len(objects)))
        time.sleep(0.5)
    time.sleep(3)
