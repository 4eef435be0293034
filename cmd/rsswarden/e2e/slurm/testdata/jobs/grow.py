"""Says its PID, grows to so many MiB, and ends when USR1 asks it to."""
import os, signal, sys, time
done = False
def asked(n, frame):
    global done
    done = True
signal.signal(signal.SIGUSR1, asked)
print(os.getpid(), flush=True)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.01)
kept = [bytearray(b"x") * (1 << 20) for _ in range(int(sys.argv[1]))]
while not done:
    time.sleep(0.01)
print("asked to end", flush=True)
