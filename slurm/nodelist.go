package slurm

import (
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
