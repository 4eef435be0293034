// Package record keeps what one run on one node has left behind, so that its
// user can be told afterwards why it died, and by how much it lived.
//
// Two things are written. The full record is an LMDB directory on node-local
// storage: each sample of every process and every event, at most 64 MiB, in
// which older samples are thinned. The journal is a small text file in the
// directory that the job was submitted from: decisions and few samples, for the
// case that the node's storage is wiped. Both have a [Meta] with the same ID.
//
// The promise is that a SIGKILL at any moment costs the last second and nothing
// else, and that storage which is full, read-only, hung or gone costs the
// record and nothing else: [Recorder] never blocks its caller. Whatever is read
// back was checked: each value carries a CRC, and LMDB, which dies by SIGBUS or
// abort on a damaged file, runs in a child process of the reader.
package record
