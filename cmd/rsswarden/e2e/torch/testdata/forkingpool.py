import mmap, os, signal, sys, time
owned = mmap.mmap(-1, 90 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
owned.madvise(mmap.MADV_DONTFORK)  # a worker that has it, be it for a moment, has grown since it began
for page in range(0, len(owned), mmap.PAGESIZE):
    owned[page] = 1
def work():
    signal.signal(signal.SIGTERM, lambda n, frame: os._exit(0))
    kept = []
    for n in range(60):
        kept.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.01)
    time.sleep(20)
    os._exit(1)
def start():
    pid = os.fork()
    if pid == 0:
        work()
    pids.add(pid)
pids = set()
start(); start()
for n in range(int(sys.argv[1])):
    pids.discard(os.wait()[0])
    start()
time.sleep(2)
for pid in pids:
    os.kill(pid, signal.SIGKILL) # not reaped yet
for pid in pids:
    os.wait()
print("finished", flush=True)
