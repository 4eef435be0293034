import os, select, signal, sys
def got(*_): os.write(1, b"got\n")
r, w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
signal.set_wakeup_fd(w)
signal.signal(signal.SIGUSR1, got)
os.write(1, b"%d\n" % os.getpid())
while True:
    ready = select.select([0, r], [], [])[0]
    if r in ready: os.read(r, 100)
    if 0 in ready and not os.read(0, 100): break
sys.exit(43)
