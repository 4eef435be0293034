"""A job that grows in the way its first argument names."""
import mmap, os, random, signal, sys, time

def touch(mib):
    b = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, len(b), 4096): b[i] = 1
    return b

what, seconds = sys.argv[1], float(sys.argv[2])
end, kept = time.monotonic() + seconds, []
if what == "steadily":       # until it is stopped
    while time.monotonic() < end:
        kept.append(touch(1))
        time.sleep(0.4)
elif what == "in bursts":    # up and down, by the seed in the third argument
    rng = random.Random(int(sys.argv[3]))
    while time.monotonic() < end:
        size = sum(len(b) for b in kept) >> 20
        if kept and (size > 330 or rng.random() < 0.4):
            for _ in range(min(len(kept), rng.randint(1, 4))):
                kept.pop(rng.randrange(len(kept))).close()
        else:
            kept.append(touch(rng.randint(5, 60)))
        time.sleep(rng.choice((0.05, 0.2, 0.9)))
elif what == "in a pool":    # in workers that it starts again
    def work():
        signal.signal(signal.SIGTERM, lambda n, frame: os._exit(0))
        while True:
            kept.append(touch(1))
            time.sleep(0.25)
    def start():
        pid = os.fork()
        if pid == 0:
            work()
        pids.add(pid)
    pids = set()
    for _ in range(3): start()
    while time.monotonic() < end:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            pids.discard(pid)
            start()
        time.sleep(0.05)
    for pid in pids: os.kill(pid, signal.SIGKILL)
    for pid in pids: os.wait()
