// Package rsstest makes /proc and cgroup trees for tests: archives of text
// (txtar) unpacked into a temporary directory, and processes written to
// measure. Readers are pointed at the directory instead of at /proc and /sys.
//
// The archives are layers; the first is usually "torch":
//
//	torch            a training with two workers below a batch shell below slurmstepd
//	slurm-v1         its cgroups as Slurm makes them on v1, --mem=700
//	slurm-v2         the same on v2, with memory.high below memory.max
//	pids-v1          a limit on tasks on another hierarchy than memory's
//	pids-namespaced  the same in a container's view
//	hybrid           v1 memory beside an empty v2, a mount point with a space
//	namespaced-v1    a container's view: part of the hierarchy, the limit out of sight
//	namespaced-v2    a cgroup namespace: the limit is on what looks like the root
//
// A file in a temporary directory is no procfs: a process that ends takes its
// directory along at once, not its open files.
package rsstest
