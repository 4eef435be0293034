// Package proctree reads a tree of processes from /proc: who belongs to it,
// and what each uses.
//
// A process is (PID, start time), never a PID. The tree is the command and all
// its descendants by parent; a descendant that loses its parent stays in the
// tree until it ends, and so do the children it makes from then on. What is
// born and orphaned between two readings is never seen as a descendant: it
// belongs to the tree where an [Adopter] took it, and is missed elsewhere, where
// only a cgroup's cgroup.procs shows it.
//
// RSS and its parts come from /proc/PID/status, whose counters may lag behind
// by some pages for each thread or CPU (up to 64 pages a thread before Linux
// 6.2); smaps_rollup is exact and expensive. A process that vanishes while it is
// read is normal. One that cannot be read, or reads as nonsense, is counted in
// [rss.Gaps] where it belongs to the tree: sums are then too small.
//
// A [Reader] belongs to one goroutine. PSS, PSSInPieces, Parts and MappedFiles
// alone may be called beside the other methods: smaps and smaps_rollup wait for
// the process's mmap_lock and can hang.
package proctree
