"""Takes memory in parts of 10 MiB, a PAUSE after each, until it has MIB, and holds it for SECONDS."""
import sys, time

mib, seconds = int(sys.argv[1]), float(sys.argv[2])
held = []
while len(held) * 10 < mib:
    held.append(b"x" * (10 << 20))
    time.sleep(float(sys.argv[3]))
time.sleep(seconds)
