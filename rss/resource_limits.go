package rss

import "math"

// Unlimited stands for RLIM_INFINITY, all ones.
const Unlimited = math.MaxUint64

// ResourceLimits are soft limits of one process (getrlimit(2)); [Unlimited]
// where there is none. prlimit(2) changes them from outside at any time.
type ResourceLimits struct {
	// AddressSpace is RLIMIT_AS in bytes: mmap and brk fail with ENOMEM where
	// [Proc].Virtual would pass it.
	AddressSpace Bytes
	// LockedMemory is RLIMIT_MEMLOCK in bytes: see [Proc].Locked and Pinned,
	// each of which is compared with it alone. A process with CAP_IPC_LOCK is
	// exempt.
	LockedMemory Bytes
	// Tasks is RLIMIT_NPROC: how many tasks, threads that is, the user may have
	// when this process makes one more.
	Tasks uint64
	// Descriptors is RLIMIT_NOFILE: how many descriptors it may have open.
	Descriptors uint64
}
