// Package control lets people and programs ask the watcher that leads on a node:
// what stands, what happens, and to recycle, trim or checkpoint now. It speaks
// HTTP/1.1 with JSON over a unix socket (mode 0600, other users are turned away
// by SO_PEERCRED), so that curl can:
//
//	curl --unix-socket /tmp/rsswarden-1000/lead.46@n1/control http://rsswarden/v1/status
//
// The server has no state of the watcher's and never holds it up: it asks by a
// [Source], whose answers may be late or not come, and a client that reads slowly
// loses lines of its own, nobody else's. Package net/http would add 2 MiB to
// every watcher, of which Slurm counts one a rank; what is needed of HTTP is
// little: one request a connection, no body above 64 KiB, an answer, the end.
package control
