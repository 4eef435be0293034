// Package store keeps the full record of a run in an LMDB directory on node-local storage,
// at most 64 MiB of it, and reads it back.
//
// A SIGKILL at any moment costs the last second and nothing else. Storage that is full,
// read-only, hung or gone costs the record and nothing else: [Recorder] never blocks its
// caller. LMDB trusts its file and dies by SIGBUS or abort on a damaged one, so [Read] has
// a child process open it, which runs [Confine] and [Export]; while a run goes on its
// watcher alone has the record open, and gives it out on a socket.
package store
