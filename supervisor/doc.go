// Package supervisor is the watcher: it wires the parts that read memory,
// judge it, act on it and tell, and runs the loop.
//
// One goroutine owns all state: the loop in [Watch]. Package probe reads what can
// hang: command lines, smaps and smaps_rollup of other processes, scontrol. The
// loop takes the answers when they are there. Writers to stderr and to the events
// file have goroutines of their own. A failure of any of these is said once, and
// the part is left out from then on.
//
// The way of one full tick: proctree and cgroup files, then a [rss.Sample],
// then readings of every limit (package limit), then the ladder (package
// policy), then actions (package action), then events and lines on stderr.
// Between two full ticks a fast tick reads one counter of the binding limit,
// after a pause that follows from headroom and the fastest fill rate seen.
//
// The command does not depend on any of this. The watcher is a process of its
// own; a panic here ends it, the holder starts it again, and the command
// notices nothing.
//
// What happens to the job, the record and the alerts when a part of ours fails is in
// docs/promises.md, each row with a test that makes the part fail.
package supervisor
