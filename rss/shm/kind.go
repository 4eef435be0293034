package shm

import (
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// Kind is what made a file, as its name tells.
type Kind string

// The kinds. Memfd is outside of /dev/shm, on a tmpfs of the kernel's own that
// has no size: memfd_create(2).
const (
	Torch     Kind = "torch"     // torch_*: tensors of PyTorch
	Python    Kind = "python"    // psm_*: multiprocessing.shared_memory; pym-*: multiprocessing.Array and Value
	Semaphore Kind = "semaphore" // sem.*, mp-*: sem_open(3), one page each
	NCCL      Kind = "nccl"      // nccl-*: between the ranks of a node
	Memfd     Kind = "memfd"
	Other     Kind = "other"
)

// kind knows a file by the last part of its name.
func kind(base string) Kind {
	for _, k := range [...]struct {
		prefix string
		kind   Kind
	}{
		{"torch_", Torch}, {"psm_", Python}, {"pym-", Python},
		{"sem.", Semaphore}, {"mp-", Semaphore}, {"nccl-", NCCL},
	} {
		if strings.HasPrefix(base, k.prefix) {
			return k.kind
		}
	}
	return Other
}

const (
	deleted = " (deleted)"
	memfd   = "/memfd:"
	below   = "/dev/shm/"
)

// nameOf takes a link of /proc/PID/fd, or a path of maps, apart (proc_pid_fd(5)):
// ok where it is in shared memory. Where the process has another root than we,
// a path may begin with the way there.
func nameOf(link string) (name string, k Kind, ok bool) {
	name = strings.TrimSuffix(link, deleted)
	if rest, ok := strings.CutPrefix(name, memfd); ok {
		return rest, Memfd, true
	}
	i := strings.Index(name, below)
	if i < 0 || !strings.HasPrefix(name, "/") {
		return "", "", false
	}
	name = name[i+len(below):]
	return name, kind(name[strings.LastIndexByte(name, '/')+1:]), true
}

// Total is how many files there are and what they take.
type Total struct {
	Files int
	Size  rss.Bytes
}
