// Package workers knows the roles of a job's processes: which train, which load
// data for which trainer or belong to a pool, what each holds, and which of them may be
// recycled, trimmed or asked. It is given samples and what the loader hook reports, and
// returns values: it acts on no process and writes no line.
package workers
