// Package slurm knows what Slurm says about the job a process is in: its ids, the memory it
// was given, and what slurmstepd does on this node when the job takes more.
//
// It reads the environment, RLIMIT_RSS and Slurm's configuration files, and asks scontrol only
// for what the files leave open. Every answer says where it was read, or that it is not known:
// the environment may be stale and the configuration unreadable. The package depends on the
// standard library only. What slurmstepd adds up, and when it kills, was measured: measured.md.
package slurm
