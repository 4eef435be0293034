package rss

import "time"

// Parts is what the memory of a process is made of, one reading of
// /proc/PID/smaps_rollup (Documentation/filesystems/proc.rst), in bytes. A page
// is shared while another process maps it too, whoever that is; Clean and Dirty
// tell whether it would have to be written before it can be dropped, and an
// anonymous page is dirty as soon as it was written.
//
// How two readings differ tells what grows: PrivateDirty with Anon is a leak or
// a cache of the process; PrivateDirty up and SharedDirty down with Anon flat is
// the copying of what fork shares (Python's reference counts); clean pages are
// files being mapped.
type Parts struct {
	RSS, PSS                                             Bytes
	SharedClean, SharedDirty, PrivateClean, PrivateDirty Bytes // RSS is their sum
	// Anonymous is what of RSS belongs to no file, copies of file pages included.
	Anonymous Bytes
	// Swap is what was swapped out, and SwapPSS this process's share of it.
	Swap, SwapPSS Bytes
	// PSSAnon, PSSFile and PSSShmem add up to PSS. Since Linux 5.3: Split is
	// false, and they are 0, before.
	PSSAnon, PSSFile, PSSShmem Bytes
	Split                      bool

	At   time.Duration // when, on the clock of Sample.Mono
	Cost time.Duration // processor time of the reading, mmap_lock held for nearly all of it
}
