// Package slurmtest runs a real Slurm on this machine, for tests: one node or
// more, with its own munged, slurmctld and slurmd, on free ports, with all its state
// in a directory of its own. Nothing of an installed Slurm's configuration is
// read or changed.
//
//	func TestJob(t *testing.T) {
//		c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
//		prog := c.Install(t, "testdata/prog")
//		run := c.Submit(t, "exec "+prog, "--mem=300")
//		if got := run.Wait(t); got.State != "COMPLETED" {
//			t.Errorf("state %s, stderr %s", got.State, got.Stderr)
//		}
//	}
//
// Start skips the test, with the reason, where a cluster cannot run: it wants
// root, Slurm and munge installed, and cgroup v1. Jobs run as a plain user,
// the account "nobody" by default, who may read and write [Cluster.Dir] and
// perhaps not the checkout: copy there what a job needs, with
// [Cluster.Install].
//
// The tests of a process share two clusters: one for the modes in which jobs are in
// cgroups of their own, one for the rest. A Start with another mode of the same kind,
// or other options, waits until no test uses it and starts it again, which takes a few
// tenths of a second; so does a cold start. Tests that mostly wait for their jobs call
// t.Parallel; those that measure time or pace do not. [Usual] are options that serve
// most.
//
// A cluster ends with the process: a guard, a small shell that reads from a pipe of the
// process, sees it end in whatever way, stops the daemons and jobs by their PID and
// removes what they left. Two processes at a time may have clusters, a third waits.
//
// # Jobs
//
// [Cluster.Submit] is sbatch: the script is a text, the job's working folder
// and its output files are made for it, and [JobRun.Wait] returns how it ended
// with all that it wrote. A batch job starts about a second after it was
// submitted. [Cluster.Srun] starts at once and needs no script.
// [Cluster.Command] is the way to anything else: srun --pty on a
// pseudo-terminal, salloc, a command that must get a signal half-way.
//
// Ask for memory by --mem: without it a job has 256 MiB a CPU. A step is
// looked at each second; a job that must be killed or must not be killed has to
// stay at its peak for longer than that.
//
// To look at a running job from outside: [JobRun.Running] waits for it,
// [JobRun.Processes] lists its PIDs, [JobRun.MemoryCgroup] is where its
// counters are, [JobRun.Log] is what slurmstepd said of it, such as "memory
// used:" at each poll. A test that fails prints the log of its jobs.
//
// # Two nodes
//
// With Nodes: 2 in [Options] there are two slurmd, each with a port, spool
// folder, log and cgroups of its own; [Cluster.Nodes] has their names, which
// SLURMD_NODENAME shows too. Everything else of the machine they share: the
// host's name, /proc, /tmp, /dev/shm. Each node has the CPUs and the memory of
// Options, which the machine may not have; CPUs are then not bound.
// [JobRun.Processes] and [JobRun.Log] are of all nodes, [JobRun.MemoryCgroup]
// of the first; [JobRun.On] narrows them to one. [slurm.OverlapArgs] is srun for a process
// on each node of a running job: stdout and stderr of its tasks are mixed in the middle of
// lines above some 1000 bytes.
//
// # Programs
//
// A program of a job is best the test binary itself, with a TestMain that
// looks at its arguments, put in place by [Cluster.InstallSelf]:
//
//	func TestMain(m *testing.M) {
//		if len(os.Args) > 1 && os.Args[1] == "leak" {
//			leak()
//		}
//		code := m.Run()
//		slurmtest.Shutdown()
//		os.Exit(code)
//	}
//
// The environment of a job is [Cluster.Env] and what Slurm adds; HOME is
// [Cluster.Dir].
//
// # Another Slurm
//
// With a Suite in [Options] the daemons, commands and jobs are those of a root of
// that suite: Slurm 24.11, Python 3.13 and PyTorch 2.6 for debian.Trixie. The files of
// jobs and tests are where they are otherwise; package debian says what is not.
//
// # Limits of the stand
//
// In the modes without task/cgroup a job stays in the memory cgroup of the
// test process, with whatever limit that has. A full /dev/shm under a cgroup
// limit kills slurmstepd as well and has the job requeued for ever: use
// --no-requeue where the kernel may kill. Of processes that wait for another
// process's cluster the last may wait for the sum of all: give go test a
// -timeout that allows for it.
package slurmtest
