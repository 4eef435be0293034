// Package cgroup2 holds tests alone: rsswarden end to end where the memory
// controller is cgroup v2, on each kernel that there is a guest of. Which limit
// binds, what is warned of before the kernel kills, what is said of a kill, and
// what a plain user may do have to be the same on all of them; where a kernel
// differs, a case says so.
package cgroup2
