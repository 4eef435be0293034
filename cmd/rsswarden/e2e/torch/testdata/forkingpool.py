import os, signal, sys, time
kept = [bytearray(b"x") * (90 << 20)]
def work():
    signal.signal(signal.SIGTERM, lambda n, frame: os._exit(0))
    kept.clear()
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
