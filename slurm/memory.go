package slurm

import (
	"math"
	"strconv"
	"strings"
	"syscall"
)

// Memory is an amount of memory that Slurm gave to a step or job on this node.
type Memory struct {
	Bytes  uint64
	Source string // where it was read: "RLIMIT_RSS", "SLURM_MEM_PER_NODE", …
	// Step says that the amount is certain to be the step's own. The
	// environment has the job's, and inside srun with its own --mem the step
	// has less.
	Step bool
}

// NoLimit is RLIM_INFINITY of getrlimit(2).
const NoLimit = math.MaxUint64

// RlimitRSS is the soft RLIMIT_RSS of this process in bytes, for [StepLimit];
// NoLimit where it cannot be read.
func RlimitRSS() uint64 {
	const rlimitRSS = 5 // asm-generic/resource.h; absent from package syscall
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitRSS, &limit); err != nil {
		return NoLimit
	}
	return limit.Cur
}

// StepLimit returns the memory that the step was given on this node, from the
// most trusted source that says anything: the first of [StepLimits].
func StepLimit(lookup func(string) (string, bool), rlimitRSS uint64) (Memory, bool) {
	all := StepLimits(lookup, rlimitRSS)
	if len(all) == 0 {
		return Memory{}, false
	}
	return all[0], true
}

// StepLimits returns every amount of memory that the process can see to have been given to its
// step or job on this node, the most trusted first.
//
// The soft RLIMIT_RSS is set by slurmstepd to the memory of the step, in every accounting mode,
// and is what OverMemoryKill compares with; Linux does not enforce it. SLURM_MEM_PER_NODE, _CPU
// and _GPU (in MiB) come from the job: srun does not replace them, and --mem=0 sets none of
// them. rlimitRSS is in bytes; RLIM_INFINITY and 0 say nothing.
func StepLimits(lookup func(string) (string, bool), rlimitRSS uint64) []Memory {
	if id, ok := lookup("SLURM_JOB_ID"); !ok || id == "" {
		if id, ok = lookup("SLURM_JOBID"); !ok || id == "" {
			return nil
		}
	}
	var all []Memory
	if rlimitRSS != 0 && rlimitRSS != NoLimit {
		all = append(all, Memory{Bytes: rlimitRSS, Source: "RLIMIT_RSS", Step: true})
	}
	step, inStep := lookup("SLURM_STEP_ID")
	own := !inStep || stepName(step) == StepBatch
	if n, ok := mebibytes(lookup, "SLURM_MEM_PER_NODE", 1); ok {
		all = append(all, Memory{n, "SLURM_MEM_PER_NODE", own})
	}
	if cpus, from := cpusOnNode(lookup); cpus > 0 {
		if n, ok := mebibytes(lookup, "SLURM_MEM_PER_CPU", cpus); ok {
			all = append(all, Memory{n, "SLURM_MEM_PER_CPU times " + from, own})
		}
	}
	if gpus, from := gpusOnNode(lookup); gpus > 0 {
		if n, ok := mebibytes(lookup, "SLURM_MEM_PER_GPU", gpus); ok {
			all = append(all, Memory{n, "SLURM_MEM_PER_GPU times " + from, own})
		}
	}
	return all
}

// mebibytes reads a variable in MiB, times a count, as bytes.
func mebibytes(lookup func(string) (string, bool), name string, times uint64) (uint64, bool) {
	v, _ := lookup(name)
	n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
	if err != nil || n == 0 || times == 0 || n > math.MaxInt64>>20/times {
		return 0, false
	}
	return n * times << 20, true
}

func countOf(lookup func(string) (string, bool), name string) (n uint64, ok bool) {
	if v, set := lookup(name); set {
		n, err := strconv.ParseUint(v, 10, 32)
		return n, err == nil
	}
	return 0, false
}

func cpusOnNode(lookup func(string) (string, bool)) (uint64, string) {
	if n, ok := countOf(lookup, "SLURM_CPUS_ON_NODE"); ok {
		return n, "SLURM_CPUS_ON_NODE"
	}
	v, _ := lookup("SLURM_JOB_CPUS_PER_NODE")
	node, _ := countOf(lookup, "SLURM_NODEID")
	return uint64(perNode(v, int(node))), "SLURM_JOB_CPUS_PER_NODE"
}

func gpusOnNode(lookup func(string) (string, bool)) (uint64, string) {
	if n, ok := countOf(lookup, "SLURM_GPUS_ON_NODE"); ok {
		return n, "SLURM_GPUS_ON_NODE"
	}
	for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if v, _ := lookup(name); v != "" {
			return uint64(strings.Count(v, ",") + 1), name
		}
	}
	return 0, ""
}

// perNode reads a list such as "4(x2),2" and returns the count of one node;
// 0 where the list is malformed or too short.
func perNode(list string, node int) int {
	if node < 0 {
		return 0
	}
	for part := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		repeat := 1
		if repeated {
			r, err := strconv.Atoi(strings.TrimSuffix(times, ")"))
			if err != nil || r < 1 || !strings.HasSuffix(times, ")") {
				return 0
			}
			repeat = r
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 {
			return 0
		}
		if node < repeat {
			return n
		}
		node -= repeat
	}
	return 0
}
