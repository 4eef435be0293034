"""A job that ends in a way of its own."""
import ctypes, mmap, os, resource, signal, sys, time

def touch(mib, flags=mmap.MAP_SHARED):
    b = mmap.mmap(-1, mib << 20, flags | mmap.MAP_ANONYMOUS)
    for i in range(0, len(b), 4096): b[i] = 1
    return b

def ready():
    print("ready", flush=True)

what = sys.argv[1]
keep = []
if what == "grow":           # until it is killed
    while True:
        keep.append(touch(20))
        time.sleep(0.15)
elif what == "worker":       # until its worker is killed
    touched = touch(60)
    if os.fork() == 0:
        while True:
            # The OOM reaper frees private memory alone: of a victim that is slow to end
            # shared memory stays, and the kernel kills the next process too.
            keep.append(touch(20, mmap.MAP_PRIVATE))
            time.sleep(0.15)
    _, status = os.wait()
    if os.WIFSIGNALED(status):
        raise RuntimeError("DataLoader worker is killed by signal: Killed.")
elif what == "maps":         # until no mapping is left
    seconds = float(sys.argv[2])
    begun, most = time.time(), int(open("/proc/sys/vm/max_map_count").read())
    while True:
        while len(keep) < most * (time.time() - begun) / seconds:
            # Neighbours of the same protection would be one mapping.
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if len(keep) % 2 else 0)
            keep.append(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot))
        time.sleep(0.01)
elif what == "fail":
    touched = touch(40)
    ready()
    time.sleep(float(sys.argv[2]))
    raise KeyError("label")
elif what == "segv":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    touched = touch(40)
    ready()
    time.sleep(float(sys.argv[2]))
    ctypes.string_at(0)
elif what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
touched = touch(40)
ready()
while True:
    time.sleep(60)
