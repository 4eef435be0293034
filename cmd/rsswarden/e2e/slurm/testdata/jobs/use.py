"""A job that uses memory in the way its first argument names. It writes a word to the file
"started" when it does."""
import mmap, os, random, sys, time

def touch(mib):
    b = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, len(b), 4096): b[i] = 1
    return b

what, size = sys.argv[1], float(sys.argv[2])
kept = []
open("started", "w").write(str(time.time()))
if what == "cache":          # reads a file of so many MiB again and again, 10 MiB a second
    with open("data", "wb") as f:
        for _ in range(int(size)): f.write(os.urandom(1 << 20))
    while True:
        with open("data", "rb", buffering=0) as f:
            while f.read(1 << 20): time.sleep(0.1)
elif what == "steady":       # holds so many MiB
    kept = touch(int(size))
    while True: time.sleep(10)
elif what == "saw":          # up from half of so many MiB and down again, each minute
    kept = [touch(1) for _ in range(int(size) // 2)]
    while True:
        began = time.monotonic()
        for i in range(int(size) // 2):
            kept.append(touch(1))
            time.sleep(max(0, began + 60 * (i + 1) / (size // 2) - time.monotonic()))
        for b in kept[int(size) // 2:]: b.close()
        del kept[int(size) // 2:]
elif what == "short":        # so many MiB at once, and the end
    kept = touch(int(size))
    time.sleep(random.uniform(2, 20))
elif what == "grow":         # so many MiB a second
    began = time.monotonic()
    while True:
        kept.append(touch(1))
        time.sleep(max(0, began + len(kept) / size - time.monotonic()))
