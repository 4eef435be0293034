import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda n, frame: got.append(n))
kept = []
print("ready", flush=True)
while True:
    line = sys.stdin.readline().split()
    if not line or line[0] == "end":
        sys.exit(7)
    if line[0] == "grow":
        kept.append(bytearray(b"x") * (int(line[1]) << 20))
    if line[0] == "signals":
        while not got:
            time.sleep(0.01)
    if line[0] == "child":
        if os.fork() == 0:
            os._exit(0)
    print("done", len(got), flush=True)
