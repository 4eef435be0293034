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

// maxNodes bounds the names that one list is expanded to: no machine has more
// nodes by far.
const maxNodes = 1 << 17

// errNodeList is wrapped by the error of [ExpandNodes].
var errNodeList = errors.New("not a list of nodes")

// ExpandNodes names each node of a list as Slurm writes it: "n[1-2,05-07],login".
// In brackets are numbers and ranges, with the zeros in front that
// names have; a name may have several brackets.
func ExpandNodes(list string) ([]string, error) {
	var names []string
	for list != "" {
		part, rest, err := firstNodes(list)
		if err != nil {
			return nil, fmt.Errorf("%w: %q", errNodeList, list)
		}
		list = rest
		some, err := expandPart(part, maxNodes-len(names))
		if err != nil {
			return nil, fmt.Errorf("%w: %q", errNodeList, part)
		}
		names = append(names, some...)
	}
	return names, nil
}

// firstNodes cuts a list at its first comma outside brackets.
func firstNodes(list string) (part, rest string, err error) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[' && !inside, c == ']' && inside:
			inside = !inside
		case c == '[', c == ']', c <= ' ', c == 0x7f:
			return "", "", errNodeList
		case c == ',' && !inside:
			if i == 0 || i == len(list)-1 {
				return "", "", errNodeList
			}
			return list[:i], list[i+1:], nil
		}
	}
	if inside {
		return "", "", errNodeList
	}
	return list, "", nil
}

// expandPart expands what has no comma outside brackets to at most most names.
func expandPart(part string, most int) ([]string, error) {
	front, rest, ok := strings.Cut(part, "[")
	if !ok {
		if most < 1 {
			return nil, errNodeList
		}
		return []string{part}, nil
	}
	inside, rest, _ := strings.Cut(rest, "]")
	tails, err := expandPart(rest, most)
	if err != nil {
		return nil, err
	}
	var names []string
	for numbers := range strings.SplitSeq(inside, ",") {
		low, high, isRange := strings.Cut(numbers, "-")
		if !isRange {
			high = low
		}
		from, e1 := nodeNumber(low)
		to, e2 := nodeNumber(high)
		if e1 != nil || e2 != nil || to < from || (to-from+1)*len(tails) > most-len(names) {
			return nil, errNodeList
		}
		for n := from; n <= to; n++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", front, len(low), n, tail))
			}
		}
	}
	return names, nil
}

func nodeNumber(s string) (int, error) {
	if !isDigits(s) {
		return 0, errNodeList
	}
	return strconv.Atoi(s)
}

// JobNodes asks which nodes a job has, or had when it ran last: sacct first, then
// scontrol, as [Ended] does. The names are sorted as Slurm has them.
func JobNodes(ctx context.Context, ask Ask, job string) ([]string, error) {
	if !isJobID(job) {
		return nil, fmt.Errorf("cannot ask about job %q: not a job id", job)
	}
	known := func(list func([]byte, string) string) func([]byte) (string, error) {
		return func(out []byte) (string, error) {
			if nodes := list(out, job); nodes != "" && len(out) <= maxSaid {
				return nodes, nil
			}
			return "", ErrNoJob
		}
	}
	list, err := askBoth(ctx, ask, job, "the nodes of job "+job, []string{"-X", "--format=JobIDRaw,JobID,NodeList"}, known(sacctNodes), known(shownNodes))
	if err != nil {
		return nil, err
	}
	return ExpandNodes(list)
}

// sacctNodes is the list of the last line on the job: of one that was requeued
// that is the last time it ran.
func sacctNodes(out []byte, job string) (list string) {
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) == 3 && slices.Contains(f[:2], job) {
			list = assigned(f[2])
		}
	}
	return list
}

func shownNodes(out []byte, job string) string {
	f, _ := shownOf(out, job)
	return assigned(f["NodeList"])
}

// NodeMemory is what the job had asked for on a node, in bytes; 0 where that is not known.
func (j *EndedJob) NodeMemory() uint64 {
	size, each := strings.CutSuffix(j.ReqMem, "n") // before 21.08
	if strings.HasSuffix(size, "c") {
		return 0 // how many CPUs it had on a node is not asked
	}
	nodes, err := ExpandNodes(j.NodeList)
	bytes := sizeOf(size, 20)
	switch {
	case each, j.Source != "sacct":
		return bytes
	case err != nil || len(nodes) == 0:
		return 0
	}
	return bytes / uint64(len(nodes))
}

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
