"""Writes a line for each signal it gets, and ends at TERM."""
import os, signal, sys, time
done = False
def got(n, frame):
    global done
    done = done or n == signal.SIGTERM
    os.write(1, b"got %d\n" % n)
for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
    signal.signal(s, got)
os.write(1, b"ready\n")
while not done:
    time.sleep(0.05)
