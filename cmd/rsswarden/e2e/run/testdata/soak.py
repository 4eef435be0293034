"""Forks children that grow, shrink, map a file and end, some of them each second, for as long as
it is left alone. In the second half of each minute it forks none."""
import mmap, os, random, sys, time
random.seed(1)
f = os.memfd_create("soak"); os.truncate(f, 64 << 20)
def child(seed):
    r = random.Random(seed)
    held, m = [], mmap.mmap(f, 0)
    for _ in range(r.randrange(1, 20)):
        if r.random() < 0.6: held.append(b"x" * r.randrange(1 << 20, 8 << 20))
        elif held: held.pop()
        for at in range(0, r.randrange(64 << 20), 4096): m[at]
        if r.random() < 0.1 and os.fork() == 0:
            time.sleep(r.random() * 2); os._exit(0)
        time.sleep(r.random() / 2)
    os._exit(0)
n = 0
while True:
    if time.monotonic() % 60 < 30:
        if os.fork() == 0: child(n)
        n += 1
    time.sleep(random.random() / 2)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
