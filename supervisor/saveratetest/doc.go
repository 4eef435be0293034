// Package saveratetest makes up training jobs and says which of them rsswarden must
// carry through: the yardstick of its save rate. It knows nothing of the ladder,
// and what it says of a job follows from the job's [Spec] alone, so no job can be
// labelled again once it has been run.
//
// [New] makes a job from a seed: its sizes, how it grows, who limits it, what its
// loader can do. [Spec.Bare] is what the limit counts of it, step by step, without
// actions and limits. [Spec.Oracle] is the least that it can do
// with: the peak of that, less what workers leak or have mapped and can give
// back, plus fresh workers. [Spec.Label] puts the two beside the limit.
//
//	fits      the oracle or the bare peak is within the limit: it must complete
//	innocent  the bare peak is at most 80 % of the limit, the mildest rung of the
//	          ladder: nothing may be done to it
//
// Innocents stay below the ladder. [Steadies] tell whether it acts uselessly above its
// rungs: jobs that stay where they began, at 80 to 99 % of the limit.
//
// The labels of all seeds that are run lie in testdata. They were written before
// the first of these jobs was run under rsswarden.
//
// What is measured with it: supervisor's TestSaveRate, in simulation with the
// live watcher; TestEnduranceSaveRate of cmd/rsswarden, in a real Slurm with a
// real PyTorch.
package saveratetest
