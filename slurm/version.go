package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// FindVersion asks scontrol for its version, "26.05.5", which asks no daemon.
func FindVersion(ctx context.Context, scontrol func(ctx context.Context, args ...string) ([]byte, error)) (string, error) {
	out, err := scontrol(ctx, "--version") // "slurm 22.05.8", "slurm-wlm 24.11.5"
	if err != nil {
		return "", err
	}
	words := strings.Fields(firstLine(out))
	if len(words) == 0 || !(Release{}).In(words[len(words)-1]) {
		return "", fmt.Errorf("scontrol --version: no version in %q", firstLine(out))
	}
	return words[len(words)-1], nil
}

// Release is a release of Slurm: {23, 11, 4} is 23.11.4.
type Release [3]int

func (r Release) String() string {
	s := fmt.Sprintf("%02d.%02d", r[0], r[1])
	if r[2] > 0 {
		s += fmt.Sprintf(".%d", r[2])
	}
	return s
}

// In says that a version, "23.11.4", is this release or a newer one. An unknown version, the
// empty one among them, is older than any.
func (r Release) In(version string) bool {
	var v Release
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return n >= 2 && slices.Compare(v[:], r[:]) >= 0
}

// Change is something about memory, or about what a job sees, that differs between
// releases of Slurm.
type Change struct {
	What  string
	Spans []Span // oldest first
}

// Span is what holds from a release on, until the next span of its [Change].
type Span struct {
	From  Release // zero for 22.05 and, unless stated otherwise, older
	Holds string
	// Run names the versions of the span that were run to see it; empty where Slurm's
	// source was read only. Commit is the commit of Slurm's that began the span, where it
	// was found.
	Run, Commit string
}

// Source is where the span is known from, for people.
func (s Span) Source() string {
	from := "read in Slurm's source"
	if s.Commit != "" {
		from = "Slurm's commit " + s.Commit
	}
	if s.Run != "" {
		if s.Commit == "" {
			return "run with " + s.Run
		}
		from = "run with " + s.Run + "; " + from
	}
	return from
}

// At returns the span of a known version.
func (c Change) At(version string) Span {
	at := c.Spans[0]
	for _, s := range c.Spans[1:] {
		if s.From.In(version) {
			at = s
		}
	}
	return at
}

// Newest is the newest release whose source [Changes] was taken from.
var Newest = Release{26, 5, 0}

// Tested are the releases with which the tests run.
const Tested = "22.05, 24.11, 26.05"

// Changes lists what changed between 22.05 and [Newest].
var Changes = []Change{
	{"OverMemoryKill, all steps of a job on a node together over the job's memory", []Span{
		{Holds: "slurmd cancels the whole job"},
		{From: Release{20, 11, 0}, Run: "22.05.8, 24.11.5", Commit: "e38a200350",
			Holds: "slurmd writes \"Exceeded job memory limit\" to the job's stderr at each ping, and the job runs on"},
		{From: Release{26, 5, 3}, Run: "26.05.5", Commit: "376311308e",
			Holds: "slurmd cancels the whole job at its next ping: TERM, then KILL after KillWait"},
	}},
	{"that sum after slurmd was restarted while the job runs", []Span{
		{Holds: "slurmd reads the job's memory again"},
		{From: Release{26, 5, 0}, Run: "26.05.5", Commit: "e75711fa15",
			Holds: "slurmd has forgotten the job's memory until another step of it starts"},
	}},
	{"jobacct_gather/cgroup on cgroup v2 counts", []Span{
		{Run: "22.05.8", Holds: "anon + anon_thp + swapcached of memory.stat: transparent huge pages twice"},
		{From: Release{23, 2, 6}, Commit: "d01d488d92", Holds: "anon + swapcached of memory.stat"},
		{From: Release{23, 11, 0}, Run: "26.05.5", Holds: "memory.current, page cache included"},
	}},
	{"no_file_cache of JobAcctGatherParams", []Span{
		{Holds: "not there"},
		{From: Release{25, 11, 0}, Holds: "jobacct_gather/cgroup counts memory.current without the page cache"},
	}},
	{"MaxRSS of jobacct_gather/cgroup", []Span{
		{Holds: "the most that a poll saw"},
		{From: Release{24, 11, 0}, Holds: "the cgroup's own peak, page cache included (memory.peak, max_usage_in_bytes)"},
	}},
	{"the job's directory on cgroup v2", []Span{
		{Run: "22.05.8, 24.11.5", Holds: "job_JOBID"},
		{From: Release{26, 5, 0}, Run: "26.05.5", Holds: "the job's SLUID, s and 13 characters"},
	}},
	{"CgroupJobIdPaths of cgroup.conf", []Span{
		{Holds: "not there"},
		{From: Release{26, 5, 2}, Holds: "with yes, the job's directory on cgroup v2 is job_JOBID"},
	}},
	{"the job's directory on cgroup v1", []Span{
		{Run: "22.05.8, 24.11.5, 26.05.5", Holds: "job_JOBID"},
	}},
	{"SLURM_STEP_ID of a batch step", []Span{
		{Run: "22.05.8, 24.11.5", Holds: "not set"},
		{From: Release{26, 5, 0}, Run: "26.05.5", Commit: "f0c71ecf36", Holds: "-5"},
	}},
	{"SLURM_JOB_SLUID", []Span{
		{Holds: "not set"},
		{From: Release{25, 11, 0}, Holds: "set in prologs"},
		{From: Release{26, 5, 0}, Run: "26.05.5", Holds: "set in tasks"},
	}},
	{"memory of a running job", []Span{
		{Holds: "cannot be changed by its user"},
		{From: Release{26, 5, 0}, Run: "26.05.5", Holds: "can be lowered by its user (scontrol update MinMemoryNode), never raised"},
	}},
	{"how long a requeued job waits", []Span{
		{Holds: "cred_expire of AuthInfo, 120 s"},
		{From: Release{25, 11, 0}, Commit: "9e6328d432", Holds: "requeue_delay of SchedulerParameters, else cred_expire of AuthInfo, 120 s"},
	}},
	{"AdminComment set by sacctmgr", []Span{
		{Run: "22.05.8", Holds: "stored in lower case"},
		{From: Release{23, 2, 0}, Holds: "stored as written"},
	}},
	{"spank_prepend_task_argv", []Span{
		{Run: "22.05.8", Holds: "not there"},
		{From: Release{23, 11, 0}, Run: "26.05.5", Holds: "there"},
	}},
	{"arguments changed by SPANK, for --container", []Span{
		{Run: "22.05.8", Holds: "not passed on"},
		{From: Release{23, 2, 0}, Run: "26.05.5", Holds: "passed on"},
	}},
}
