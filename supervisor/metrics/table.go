// Package metrics is what Prometheus gets to see of a job: the one table of names,
// from which the textfile of a run, the daemon and the documentation are made, and a
// small writer of the text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// A series is known by its labels: the job, step and node, and names of closed lists.
// None of them is a PID, a command, a user or a path, so that a node has as many series
// as its jobs need and no more.
package metrics

import (
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Type is what a metric does over time.
type Type string

// The types that are in use.
const (
	Gauge   Type = "gauge"
	Counter Type = "counter"
)

// Metric is one name, with what its values mean.
type Metric struct {
	Name string
	Type Type
	// Help says what is added up and where it is read. It stays as it is from version
	// to version: where two runs of one node say it differently, node_exporter leaves
	// the metric of one of them out.
	Help string
	// Labels are those that it has beside [Common].
	Labels []Label
	// Whole says that it is of a job as a whole: of [Common] it has no step.
	Whole bool
	// Former says that it is the former name of another, which stays for one release.
	Former bool
}

func gauge(name, help string, labels ...Label) Metric {
	return Metric{Name: name, Type: Gauge, Help: help, Labels: labels}
}

func counter(name, help string, labels ...Label) Metric {
	return Metric{Name: name, Type: Counter, Help: help, Labels: labels}
}

// Label is the name of a label with what its values may be.
type Label struct {
	Name, Help string
	// Values is the closed list, nil for what a site names.
	Values []string
}

// The labels that every series may have. One that has no value is left out, which is
// the same to Prometheus: outside Slurm there is no job.
var (
	JobID = Label{Name: "jobid", Help: "SLURM_JOB_ID; of an array job that of the task"}
	Step  = Label{Name: "step", Help: "a number, `batch`, `interactive`, `extern`"}
	Node  = Label{Name: "node", Help: "SLURMD_NODENAME, else the host name"}
	// Run tells files apart: two runs of one node may have no job, or be of one step.
	Run = Label{Name: "run", Help: "textfile alone: tells one run from any other of the job, or outside Slurm; of `rsswarden_runs_total` one user from another"}
)

// Common are the labels of every series, in the order in which they are written.
var Common = []Label{JobID, Step, Node, Run}

// The labels that some metrics have.
var (
	ByLimit   = Label{"limit", "which limit, as `rsswarden limits` names it", names(event.Limits)}
	BySize    = Label{"limit", "the same, of those that are sizes", names(sizes())}
	ByLevel   = Label{"level", "what the limit counts: the step, or a task of it", []string{levelStep, levelTask}}
	ByScope   = Label{"scope", "former names alone: what the limit counts", names(event.Scopes)}
	ByRole    = Label{"role", "what processes are in a training job", names(rss.Roles)}
	ByAction  = Label{"action", "what a rule asks for; `worker_trim`: what workers trim by themselves to keep to their budget", append(names(event.Actions), WorkerTrim)}
	ByOutcome = Label{"outcome", "the result", names(Outcomes)}
	ByEnd     = Label{"outcome", "of a run: how it ended", names(slices.DeleteFunc(slices.Clone(event.RunOutcomes), func(o event.RunOutcome) bool { return o == event.RunRunning }))}
	ByVersion = Label{Name: "version", Help: "of rsswarden"}
)

// The values of [ByLevel].
const (
	levelStep = "step"
	levelTask = "task"
)

// WorkerTrim is the action of workers that trim by themselves; no rule asks for it.
const WorkerTrim = "worker_trim"

// Result is the value of the label outcome.
type Result string

// What comes of an action.
const (
	Done    Result = "done"    // it was carried out
	Failed  Result = "failed"  // it was tried
	Refused Result = "refused" // nothing was done: it cannot help here, --dry-run, or its target ended first
)

// Outcomes lists every result.
var Outcomes = []Result{Done, Failed, Refused}

// Use are the metrics of how near something is to its limits. Those of jobs have other
// names than those of steps: a sum over one name counts no memory twice.
type Use struct{ Used, Limit, Ratio, TimeLeft, Unreclaimable, Charged Metric }

// of returns all of them, for the lists.
func (u *Use) of() []*Metric {
	return []*Metric{&u.Used, &u.Limit, &u.Ratio, &u.TimeLeft, &u.Unreclaimable, &u.Charged}
}

// use makes those whose names begin with rsswarden_ and whose, with labels beside limit.
func use(whose string, by ...Label) Use {
	name := "rsswarden_" + whose
	more := func(l Label) []Label { return append([]Label{l}, by...) }
	u := Use{
		Used: gauge(name+"memory_used_bytes",
			"What the enforcer of a limit compares with it: of a cgroup what reclaim cannot take back, of throttle the charge, of slurm the sum that slurmstepd makes, of user the sum by --accounting, of node MemTotal less MemAvailable and used swap, of commit Committed_AS, of shm what /dev/shm holds, of a limit on one process, such as memlock, what the process that is nearest has.",
			more(BySize)...),
		Unreclaimable: gauge(name+"memory_unreclaimable_bytes",
			"Charge of the cgroup less what reclaim can take back: file cache, dirty or not, and on v2 reclaimable slab, by memory.stat. Only this can end in an OOM kill.", by...),
		Charged: gauge(name+"memory_charged_bytes",
			"All that the kernel charges to the cgroup, page cache with it, by memory.usage_in_bytes or memory.current. It may be at the limit for hours: page cache gives way.", by...),
		Limit: gauge(name+"memory_limit_bytes",
			"The limit that "+name+"memory_used_bytes is compared with, as it is in force now.", more(BySize)...),
		Ratio: gauge(name+"limit_ratio",
			"Used over limit, 1 where the job dies; also of limits on numbers: maps, fds, tasks.", more(ByLimit)...),
		TimeLeft: gauge(name+"time_to_limit_seconds",
			"Forecast time until the limit is met; absent where none is made. Of time what is left until the job's end.", more(ByLimit)...),
	}
	for _, m := range u.of() {
		m.Whole, m.Former = whose == "job_", whose == ""
	}
	return u
}

// How near limits are: one series for each limit of a job; those of steps and tasks; and
// the former names of both.
var (
	OfJob  = use("job_")
	OfStep = use("step_", ByLevel)
	Former = use("", ByScope)
)

// The other metrics.
var (
	JobPeak   = Metric{Name: "rsswarden_job_memory_peak_bytes", Type: Gauge, Help: peakHelp, Labels: []Label{BySize}, Whole: true}
	StepPeak  = gauge("rsswarden_step_memory_peak_bytes", peakHelp, BySize, ByLevel)
	Processes = gauge("rsswarden_processes",
		"Live processes, excluding zombies.", ByRole)
	MemoryRSS = gauge("rsswarden_memory_rss_bytes",
		"Resident memory summed over processes; pages that they share count once for each. A run sums VmRSS of /proc/PID/status by role; the daemon sums resident of /proc/PID/statm by step, and where jobs have no memory cgroup alone.", ByRole)
	Actions = counter("rsswarden_actions_total",
		"Actions that rules or people asked for, by what came of them.", ByAction, ByOutcome)
	MemoryFreed = counter("rsswarden_memory_freed_bytes_total",
		"What actions gave back, measured by the accounting of the limit that they were about.", ByAction)
	PagesDropped = counter("rsswarden_pages_dropped_bytes_total",
		"Mapped file pages that trims dropped. A page that is read and dropped again counts again: this is no amount of memory.", ByAction)
	Runs = counter("rsswarden_runs_total",
		"Runs with --textfile that have ended on this node, by how they ended: those of one user in one file, which stays. Of several ranks those count that led at their end.", ByEnd)
	SelfMemory = gauge("rsswarden_self_memory_bytes",
		"RSS of rsswarden itself, its processes in this run summed.")
	SelfCPU = counter("rsswarden_self_cpu_seconds_total",
		"Processor time of rsswarden itself, user and system, its processes in this run summed.")
	OOMKills = counter("rsswarden_oom_kills_total",
		"Processes of the job that the kernel's OOM killer ended at least, by oom_kill of memory.events or memory.oom_control, since rsswarden watches.")
	OOMUnheard = gauge("rsswarden_oom_unheard_steps",
		"Steps of the node, seen by the daemon, of which the kernel does not tell at once that the OOM killer is at work in them: on cgroup v1 it takes root, and descriptors. Of those that end right after a kill little is known.")
	Ranks = gauge("rsswarden_ranks",
		"Ranks of the job on this node that run under rsswarden.")
	LastLook = gauge("rsswarden_last_look_timestamp_seconds",
		"Unix time at which these values were read.")
	BuildInfo = gauge("rsswarden_build_info",
		"1, with the version that is running.", ByVersion)
)

const peakHelp = "The most that was compared with its limit so far, of the limit that came nearest."

// near are the metrics of limits, which run and daemon have.
var near = slices.Concat(OfJob.of(), OfStep.of(), Former.of())

// All lists every metric in the order of the documentation.
var All = append(slices.Clone(near),
	&JobPeak, &StepPeak, &Processes, &MemoryRSS, &Actions, &MemoryFreed, &PagesDropped, &OOMKills, &OOMUnheard, &Ranks, &Runs, &SelfMemory, &SelfCPU, &LastLook, &BuildInfo)

// Unit is what its values are in, by its name, which ends in it as Prometheus's all do.
func (m *Metric) Unit() string {
	switch name := strings.TrimSuffix(m.Name, "_total"); {
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_ratio"):
		return "1"
	}
	return "number"
}

func names[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

func sizes() []event.LimitName {
	var list []event.LimitName
	for _, l := range event.Limits {
		if r := l.Row(); r.Bytes() {
			list = append(list, l)
		}
	}
	return list
}
