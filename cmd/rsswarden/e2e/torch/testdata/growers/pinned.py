# Page-locked memory that grows, without a GPU.
#   uring  buffers registered with io_uring: the kernel counts them in mm->pinned_vm,
#          VmPin of status, as it counts what RDMA registers (NCCL over InfiniBand)
#   cuda   shared memory without a file, touched: what cudaHostAlloc shows as, which
#          adds to RssShmem and neither to VmPin nor to /dev/shm
import ctypes, mmap, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)
libc, size = ctypes.CDLL(None, use_errno=True), 8 << 20


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.01)
        return i


def pin(buffer):
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))  # io_uring_setup
    at = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    vector = (ctypes.c_uint64 * 2)(at, size)
    if ring < 0 or libc.syscall(427, ring, 0, vector, 1) != 0:  # IORING_REGISTER_BUFFERS
        sys.exit("io_uring: errno %d" % ctypes.get_errno())


over, kept = lasting(29 if sys.argv[2] == "cuda" else 17), []
for step, batch in enumerate(DataLoader(Samples(), batch_size=8, num_workers=2)):
    if step % (6 if sys.argv[2] == "uring" else 10) == 0:
        if sys.argv[2] == "uring":
            kept.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            pin(kept[-1])
        else:
            kept.append(mmap.mmap(-1, size))
            kept[-1].write(b"x" * size)
    if over():
        break
