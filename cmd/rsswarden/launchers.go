package main

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// ofSlurm are options of srun and sbatch that people write behind run: it takes srun's
// place in their script, and they expect it to take its options.
var ofSlurm = []string{
	"N", "nodes", "ntasks", "ntasks-per-node", "c", "cpus-per-task", "G", "gpus", "gpus-per-node", "gpus-per-task", "gres",
	"p", "partition", "A", "account", "t", "time", "w", "nodelist", "J", "job-name", "o", "exclusive", "overlap", "mpi", "cpu-bind",
	"mem-per-cpu", "mem-per-gpu", "export", "jobid", "qos", "constraint", "chdir", "D", "l", "label", "u", "unbuffered",
}

// notOurs says of an option of `run` whose it is; empty for what nobody has.
func notOurs(c *cli.Context, word string) string {
	switch {
	case c.Command == nil || c.Command.Name != "run":
		return ""
	case word == "c":
		return "a command line for a shell is written " + programName + " run -- sh -c '…'; -c of srun stands before " + programName + ": srun -c 4 " + programName + " run -- COMMAND"
	case slices.Contains(ofSlurm, word):
		return "if srun's is meant, it stands before " + programName + ": srun " + dashed(word) + " … " + programName + " run -- COMMAND"
	}
	return ""
}
