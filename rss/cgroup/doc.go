// Package cgroup reads what memory cgroups limit and charge, v1 and v2, from
// the leaf a process is in up to the root: nothing is written
// and no privilege is needed.
//
// A limit may be on any level, seldom on the leaf, and is compared with the
// usage of the same level. Three numbers describe a level, and only the last
// kills:
//
//   - charged: memory.usage_in_bytes (v1), memory.current (v2), page cache
//     included;
//   - working set: charged less inactive_file;
//   - unreclaimable: charged less what reclaim can take back, which is file
//     cache and, on v2, reclaimable slab. tmpfs and shared memory stay in.
//
// Dirty pages and pages under writeback count as reclaimable: at the limit the
// kernel writes them out and makes the allocation wait. A job that writes 900
// MB under a limit of 300 MB is at 97 % with them counted in, and sees no
// OOM kill. Writing may hang with the file system behind it; then so does the
// job.
//
// cgroup v1 does not say how much of its kernel memory is reclaimable: dentry
// and inode caches count as unreclaimable there, so the v1 number errs on the
// safe side.
//
// A charge lags behind by up to 64 pages for each CPU (MEMCG_CHARGE_BATCH).
// A missing file is normal: each reader says since which kernel it exists.
//
// The pids controller, which limits the number of tasks, is read in the same way:
// see [OpenTasks].
//
// A [Level] keeps descriptors of its counters and belongs to one goroutine.
package cgroup
