// Package leader has the watchers of one job on one node find each other: one of
// them leads, watches all that a limit counts and acts, the others stand by.
//
// They meet in a directory on node-local storage that only this user can enter,
// named after job and node. Who holds the lock on the file "lock" in it leads;
// the kernel gives the lock up when its holder ends, however it ends, and the
// next one waiting has it at once. Each watcher lays down who it is in a file of
// its own, and the leader asks another's watcher for what only that may do, as
// stopping its command or tracing its processes, by files too: "order" and
// "answer", renamed into place, so that nobody reads half of one. In "fired" the
// leader keeps for the next one what was done and is not to be done again.
//
// The promise: no watcher waits for another. One that cannot read or write here,
// or finds the directory not to be trusted, leads for its own command alone.
package leader
