package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Running is a job that has nodes.
type Running struct {
	ID    string // its number, of an array task its own
	State string // "RUNNING", "SUSPENDED", …
	// List names its nodes as Slurm writes it, "n[1-2]"; Nodes each of them.
	List  string
	Nodes []string
}

var (
	ErrNotRunning = errors.New("the job does not run")
	ErrArray      = errors.New("the job is an array")
)

// FindRunning asks scontrol which nodes a job has. job is a number, "12_3" for an
// array task. The error wraps [ErrNoJob], [ErrNotRunning] or [ErrArray] where Slurm
// answered; for a job that is not running the error also has its state.
func FindRunning(ctx context.Context, scontrol func(ctx context.Context, args ...string) ([]byte, error), job string) (Running, error) {
	if !isJobID(job) && !IsSLUID(job) {
		return Running{}, fmt.Errorf("cannot ask about job %q: not a job id", job)
	}
	out, err := scontrol(ctx, "show", "job", job, "-o")
	var r Running
	if err == nil {
		r, err = parseRunning(out, job)
	} else if strings.Contains(err.Error(), "Invalid job id") {
		err = ErrNoJob
	}
	if err != nil {
		return r, fmt.Errorf("cannot find the nodes of job %s: %w", job, err)
	}
	return r, nil
}

// parseRunning reads what `scontrol show job ID -o` prints.
func parseRunning(b []byte, job string) (Running, error) {
	for f := range shownJobs(b) {
		if f["ArrayJobId"] == job && f["ArrayTaskId"] != "" { // its number is also that of its last task
			return Running{}, ErrArray
		}
	}
	f, err := shownOf(b, job)
	if err != nil {
		return Running{}, err
	}
	r := Running{ID: f["JobId"], List: assigned(f["NodeList"])}
	r.State, _ = stateWord(f["JobState"])
	if r.List == "" || r.State != "RUNNING" && r.State != "SUSPENDED" && r.State != "STOPPED" {
		return r, fmt.Errorf("%w: it is %s", ErrNotRunning, r.State)
	}
	r.Nodes, err = ExpandNodes(r.List)
	return r, err
}

// OverlapArgs is the command line of srun, without its name, that runs a command
// once on each of nodes of a job that runs, beside all that runs there. node
// narrows it down to one of them where it is not empty.
//
//	--overlap, --mem=0     the step takes none of the job's CPUs and memory away
//	--gres=none            nor a GPU
//	--cpu-bind, --mpi=none what a site has by default costs time, or hangs
//	--propagate=NONE       limits of the login node do not hold there
//	--chdir=/              the directory where it is typed may not be there
//	--wait=0, --kill-on-bad-exit=0  a node that has done waits for none, and ends none
//	--input=none           what is typed is not for it
func OverlapArgs(r Running, node string, command ...string) []string {
	list, n := r.List, len(r.Nodes)
	if node != "" {
		list, n = node, 1
	}
	count := strconv.Itoa(n)
	return slices.Concat([]string{
		"--jobid=" + r.ID, "--overlap", "--mem=0", "--gres=none",
		"--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1", "--cpus-per-task=1", "--nodelist=" + list,
		"--cpu-bind=none", "--mpi=none", "--propagate=NONE", "--chdir=/", "--export=ALL",
		"--wait=0", "--kill-on-bad-exit=0", "--input=none", "--quiet",
	}, command)
}

// OverlapEnv is an environment for that srun: what sbatch and srun leave in one is
// taken by srun for options, and would be those of another job or step.
func OverlapEnv(env []string) []string {
	keep := []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_SOCKET"}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		ours := strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "SRUN_") || strings.HasPrefix(name, "SBATCH_") || strings.HasPrefix(name, "PMI")
		return ours && !slices.Contains(keep, name)
	})
}

// OverlapRefused is why srun started nothing, in its own words, from what it wrote
// to stderr: the first line with an error.
func OverlapRefused(stderr []byte) string {
	for line := range bytes.Lines(stderr) {
		s := strings.TrimPrefix(strings.TrimSpace(string(line)), "srun: ")
		for _, word := range []string{"error: ", "fatal: "} {
			if rest, ok := strings.CutPrefix(s, word); ok {
				return rest
			}
		}
	}
	return firstLine(stderr)
}
