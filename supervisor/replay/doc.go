// Package replay runs the ladder again over what a record holds: as it was, or
// with another limit or other rules. It is the same ladder as in the watcher,
// [policy.State], on a clock of the record's.
//
// With the limit and the rules of the record nothing is guessed: the record has all that the
// ladder was given whenever it changed its mind ([event.Judged]), and with that it decides the
// same, to the byte: [Result.Same]. Of a record without it, an old one or one that lost a part,
// the decisions are listed as they were made.
//
// With another limit or other rules there is a model, and all that follows from
// it is an estimate and called one. Its assumptions:
//
//   - Only the limit that is replaced changes, together with those of the same
//     name that had the same size: one --mem sets both the step's and the job's.
//   - The job does what it did: as fast, with as many workers, which live as long.
//     What workers gave back by themselves to keep to a budget stays given back.
//   - A limit ends the job as soon as its use, read once a second, reaches it.
//     slurmstepd, which looks every 30 s, may be later; a burst between two
//     readings is not seen. An action takes effect until the next reading.
//   - A trim that was not recorded leaves each worker as much mapped from files as
//     the least worker had when it was seen first. From there the worker grows
//     again as it grew after it was seen first itself, up to what the record says
//     it had. With --trim ptrace the same goes for every process. A trim counts
//     where RSS or PSS is added up, under PSS by the share that the worker's PSS
//     was of its RSS.
//   - A recycle that was not recorded does the same with all that one worker had,
//     the one that has most above a fresh one. Of the anonymous part every
//     accounting takes note.
//   - An action that was recorded and is not taken here: what it freed, by its
//     outcome, is added back, for as long as the workers of that moment live. Does
//     what grew afterwards come on top of it, or is it the same pages come back?
//     No record tells. Both are played; where the job lives in one and dies in the
//     other, its fate is unknown.
//   - gc, signal= and exec= free nothing unless they are those of the record.
//
// Beyond the end of the record nothing is known: where the job died there, a
// larger limit may have let it live.
package replay
