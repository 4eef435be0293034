package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JobDetails is what `scontrol show job -d -o` says of a job that runs.
type JobDetails struct {
	// Name is what `scontrol update` takes for this job alone: the number of an array's last task
	// is also that of all of its tasks.
	Name         string
	State        string // "RUNNING", "COMPLETING", …
	Start        time.Time
	RunTime      time.Duration // without the time that it was suspended
	GPUs         int
	AdminComment string // its first word; empty for none
	Nodes        map[string]NodeShare
}

// NodeShare is what a job was given on a node.
type NodeShare struct {
	CPUs int
	MiB  uint64 // 0 where memory is not allocated
}

// ErrUnclear says that text of a job's owner, as its name or its script's arguments, looks like fields
// of Slurm's.
var ErrUnclear = errors.New("what the job's owner wrote looks like what Slurm does")

// ParseJobDetails reads what `scontrol show job -d -o ID` prints. Of an array it is the task whose
// own JobId it is. Its error is [ErrUnclear] where the text could name another job, or hide a comment.
func ParseJobDetails(b []byte, job string) (JobDetails, error) {
	f, err := shownOf(b, job)
	if err != nil {
		return JobDetails{}, err
	}
	d := JobDetails{
		Name: f["JobId"], Start: slurmTime(f["StartTime"], time.Local), RunTime: span(f["RunTime"]),
		AdminComment: known(f["AdminComment"]), GPUs: gpusOf(f["AllocTRES"]), Nodes: map[string]NodeShare{},
	}
	d.State, _ = stateWord(f["JobState"])
	if d.GPUs == 0 {
		d.GPUs = gpusOf(f["TRES"]) // before 23.02
	}
	lines := 0
	for line := range strings.Lines(string(b)) {
		if showFields(line)["JobId"] != f["JobId"] {
			continue
		}
		if lines++; lines > 1 || strings.Count(line, " MCS_label=") > 1 || strings.Count(line, " AdminComment=") > 1 {
			return JobDetails{}, ErrUnclear
		}
		slurms, _, _ := strings.Cut(line, " JobName=") // in front of all that a user has a say in
		n := fieldsOf(slurms)
		switch array, task, het, offset := n["ArrayJobId"], n["ArrayTaskId"], n["HetJobId"], n["HetJobOffset"]; {
		case isDigits(array) && isDigits(task):
			d.Name = array + "_" + task
		case isDigits(het) && isDigits(offset):
			d.Name = het + "+" + offset
		}
		d.shares(unnamed(line))
	}
	return d, nil
}

// shares reads "Nodes=n[1-2] CPU_IDs=0-3,6 Mem=200", once for each group of nodes that have the
// same. All of it is before what users have a say in, but for the job's name, which is cut out.
func (d *JobDetails) shares(line string) {
	line, _, _ = strings.Cut(line, " MinCPUsNode=")
	var nodes []string
	var share NodeShare
	for word := range strings.FieldsSeq(line) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "Nodes":
			nodes, _ = ExpandNodes(value)
			share = NodeShare{}
		case "CPU_IDs":
			share.CPUs = countIDs(value)
		case "Mem":
			share.MiB, _ = strconv.ParseUint(value, 10, 64)
			for _, n := range nodes {
				d.Nodes[n] = share
			}
		}
	}
}

// countIDs counts "0-3,6"; 0 for what is no such list.
func countIDs(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, e1 := strconv.Atoi(low)
		to, e2 := strconv.Atoi(high)
		if e1 != nil || e2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

// gpusOf reads "cpu=2,mem=200M,node=1,billing=2,gres/gpu=4".
func gpusOf(tres string) int {
	for part := range strings.SplitSeq(tres, ",") {
		if n, ok := strings.CutPrefix(part, "gres/gpu="); ok {
			return int(count(n))
		}
	}
	return 0
}

// span reads "1-02:03:04", days first; 0 for what is none.
func span(s string) time.Duration {
	var days, hours, minutes, seconds int
	if d, rest, ok := strings.Cut(s, "-"); ok {
		days, _ = strconv.Atoi(d)
		s = rest
	}
	if n, _ := fmt.Sscanf(s, "%d:%d:%d", &hours, &minutes, &seconds); n != 3 {
		return 0
	}
	return max(time.Duration(((days*24+hours)*60+minutes)*60+seconds)*time.Second, 0)
}
