// Package record is what one run on one node leaves behind, so that its user can learn why
// it died, and how near it came: the model of a run ([Run]), the codec of its samples, and
// the journal.
//
// Two things are written. The full record has each sample of every process and every event;
// older samples are thinned, see [Thin]. Package store keeps it in LMDB. The journal is a
// small text file in the directory that the job was submitted from: decisions and few
// samples, in case the node's storage is wiped. Both have a [Meta] with the same ID.
// Whatever is read back was checked: each value of the full record carries a CRC.
package record
