// Package shm reads what is in shared memory: how full the /dev/shm of a
// process is, and who holds what in it.
//
// A page of tmpfs is in no process's RSS unless it is mapped, and stays when all
// have ended as long as the file has a name. PyTorch sends batches through such
// files: by its file_descriptor strategy they have no name (torch_* opened and
// removed at once, held by descriptors and mappings alone), by file_system they
// have one, and torch_shm_manager removes it.
//
// Everything here goes through /proc/PID/root, so that it is the /dev/shm which
// that process sees, and needs the access that ptrace(2) calls PTRACE_MODE_READ:
// the same user, and no more rights than we. A PID may have gone to another
// process meanwhile: who needs to be sure compares its start time after.
//
// A tmpfs answers at once, but /dev/shm may be anything, a hung FUSE file system
// too, and maps waits for the process's mmap_lock: call all of this on a side
// goroutine, with a deadline of the caller's.
package shm
