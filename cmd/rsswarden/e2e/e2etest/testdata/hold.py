import sys
sys.path = [place for place in sys.path if place]  # the working directory may hang
import mmap
keep = None
for line in sys.stdin:
    if keep:
        keep.close()
    keep = mmap.mmap(-1, int(line) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    keep.madvise(mmap.MADV_HUGEPAGE)  # a fault for 2 MiB, where a machine's faults are slow
    for page in range(0, len(keep), mmap.PAGESIZE):
        keep[page] = 1
    print(int(line), flush=True)
sys.exit(7)
