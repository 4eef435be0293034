// Package limit finds every way in which memory can end the job, and says how
// far off each is, in exactly the accounting of whoever enforces it.
//
// A [Set] is made once by [Find] and read at every full tick; limits are read
// again each time, since they may shrink under a running job. Every number
// comes with the place it was read from. What cannot be found out is a
// [Warning], never an error: with no cgroup and no Slurm there is still the
// node. Places that were looked at and gave nothing are kept too, for
// `rsswarden limits`.
//
// For a cgroup, used is the unreclaimable part of the charge of the same level
// that has the limit: page cache at the limit is normal and kills nothing. For
// Slurm, used is the sum that slurmstepd compares, over the processes that it
// counts, orphans left out where it sums by parent. PSS is known only to lie
// between two bounds: Used is the lower, UsedMax the upper. Both allow for what
// other processes have mapped and given up since each reading.
//
// In a step where neither Slurm's configuration nor scontrol can be read, as in
// a container, it is not known whether slurmstepd kills. A kernel limit of the
// step or job says that it does not: Slurm refuses to do both. Else the worst is
// assumed, summed RSS against RLIMIT_RSS, and called an assumption.
//
// A Set belongs to one goroutine.
package limit
