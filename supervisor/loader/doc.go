// Package loader speaks with the PyTorch data loaders of a job through small
// files in a run directory.
//
// The holder calls [Prepare] before it starts the command: a directory that
// only this user can enter is made on a file system of this node, and the
// command's environment is given RSSWARDEN_DIR and a PYTHONPATH that begins
// with the hook (package hook). Any failure there leaves the environment as it
// was. The watcher opens the same directory with [Open] and asks the loaders to
// trim, to keep to a budget or to replace a worker.
//
// The promise to the job: a Python process that finds anything not as
// expected does nothing; no thread, socket or signal is added to it; without a
// request the batches, their order and every random draw are what they would
// be without us. What is asked for is answered when the trainer next takes a
// batch, which may be long after: deadlines are the caller's.
//
// # Files
//
//	identity             who made the directory; boot id and PID namespace it is good for
//	hello.PID.START      a process with torch is there (JSON, renamed into place)
//	ctl.PID.START        what we want of that trainer and its workers (JSON, renamed into place)
//	log.PID.START        what it and its workers report (a JSON object a line, each one write)
//	ready.PID            a replacement has come up; gone at once
//
// START is the start time in clock ticks since boot, field 22 of /proc/PID/stat.
package loader
