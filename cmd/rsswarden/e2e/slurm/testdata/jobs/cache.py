"""Writes, reads and maps three times its limit: the page cache fills the cgroup, and nothing is
wrong."""
import mmap, os, sys, time
path = sys.argv[1]
with open(path, "wb") as f:
    for _ in range(900): f.write(os.urandom(1 << 20))
end = time.time() + 6
n = 0
while time.time() < end:
    with open(path, "rb") as f:
        while f.read(1 << 20): pass
        m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        for i in range(0, len(m), 4096): n += m[i]
        m.close()
os.unlink(path)
