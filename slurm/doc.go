// Package slurm knows what Slurm says about the job a process is in: its ids,
// the memory it was given, and what slurmstepd does on this node when the job
// takes more.
//
// It reads the environment, RLIMIT_RSS and Slurm's own configuration files; it
// asks scontrol only for what the files leave open, through a function its
// caller hands in. Every answer says where it was read. The environment may be
// stale and the configuration may be unreadable, so every answer can also be
// that it is not known: the package never guesses.
//
// The package depends on the standard library only.
//
// What slurmstepd adds up, and when it kills, was measured: see measured.md.
package slurm
