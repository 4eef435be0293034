// Package diagnosis says why the memory of a training job grows: which of the findings of
// package event fits what was read, by which numbers, and what to write instead.
//
// It is code over readings: no clock, no files. The same [State] runs in the watcher, fed
// each look, and over a record afterwards. What it keeps is bounded: 48 points of the life of
// each trainer and worker, some 3 KiB. What does not show in what every look reads, as
// copy-on-write does not, a State asks for by [State.Wants]: such files hold up the process
// while they are read. An input that is not there lowers the confidence of a finding, or
// there is none.
//
// # What counts
//
// A growth is reported from 64 MiB on that are also 5 % of the memory limit, or, where none
// is known, of what the tree has. Start-up is left out: a worker's first 5 seconds, and all that
// a trainer does before it has workers.
//
// A leak has no end. It counts where the growth held in each quarter of the time looked at,
// never fell by a third of what it came to, and goes on, over 20 s at least: over the whole
// life of the process, or over its last half or quarter if these are longer than a minute and
// go above all that was before. So a growth that began late is reported once it has lasted for a
// third as long as the process lived before; a ramp that has flattened, a saw-tooth and a
// cache that is full are not reported. Mapped files, shared memory and pinned memory cost what
// they cost even where they have stopped growing, and are told for that.
package diagnosis
