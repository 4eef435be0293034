// Package report tells what a run was: why it died or by how much it lived,
// from what package record read back, and from what Slurm says of the job.
//
// A sentence never says more than is known. What the record shows is told as
// seen; what follows from it as likely, with what it follows from; what Slurm
// says as Slurm's.
package report
