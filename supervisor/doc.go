// Package supervisor is the watcher: it puts the parts together that read memory, judge it,
// act on it and tell, and runs the loop in [Watch], whose goroutine owns all state.
//
// A full read takes the processes that are watched (package population), finds their
// roles (workers) and how near each limit is (limit, counts), lets the ladder judge
// (policy), begins and advances actions (action), and tells (tell). Between two full reads a
// fast one reads one counter of the limit that binds, after a pause that follows from
// headroom and the fastest growth seen (cadence). What may hang is read beside the loop
// (probe, observe). docs/architecture.md has the picture.
//
// The command depends on none of this. The watcher is a process of its own: a panic here
// ends it, the holder starts it again, and the command notices nothing. Any other failure is
// told once, and the part is left out from then on; docs/promises.md has a row, and a test,
// for each.
package supervisor
