// Package loader speaks with the PyTorch data loaders of a job through small
// files in a run directory.
//
// The holder calls [Prepare] before it starts the command: it makes a directory
// that only this user can enter, on a file system of this node, and gives the
// command RSSWARDEN_DIR and a PYTHONPATH that begins with the hook (package
// hook). Any failure there leaves the environment as it was. The watcher opens
// the directory with [Open] and asks the loaders to trim, to keep to a budget,
// to collect garbage or to replace a worker.
//
// The promise to the job: a Python process that finds anything unexpected does
// nothing; no thread, socket or signal is added to it; without a request the
// batches, their order and every random draw are as without us. A trainer
// answers when it next takes a batch, which may be long after: deadlines are
// the caller's.
//
// README.md says what is trimmed, replaced and refused, what was run, and which files there are.
package loader

// Tested are the versions of PyTorch with which the tests run.
const Tested = "1.13, 2.6, 2.14"
