import mmap, os, sys, time
with open(sys.argv[1], "wb") as f: f.write(bytes(60 << 20))
parent = os.getpid()
if os.fork() == 0:
    with open(sys.argv[1], "rb") as f: m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    n = 0
    while os.getppid() == parent: # what it maps is no more than a look knows of, but for the last
        for i in range(n, min(n + (5 << 20), len(m)), 4096): m[i]
        n += 5 << 20
        time.sleep(0.1)
    os._exit(0)
