// Package metrics is what Prometheus gets to see of a job: the one table of names,
// from which the textfile of a run, the daemon and the documentation are made, and a
// small writer of the text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// A series is known by its labels: the job, step and node, and names of closed lists.
// None of them is a PID, a command, a user or a path, so that a node has as many series
// as its jobs need and no more.
package metrics

import (
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
	Run = Label{Name: "run", Help: "textfile alone: tells one run from any other of the job, or outside Slurm"}
)

// Common are the labels of every series, in the order in which they are written.
var Common = []Label{JobID, Step, Node, Run}

// The labels that some metrics have.
var (
	ByLimit   = Label{"limit", "which limit, as `rsswarden limits` names it", names(event.Limits)}
	BySize    = Label{"limit", "the same, of those that are sizes", names(sizes())}
	ByScope   = Label{"scope", "what the limit counts; of several with one name and scope, the nearest", names(event.Scopes)}
	ByRole    = Label{"role", "what processes are in a training job", names(rss.Roles)}
	ByAction  = Label{"action", "what a rule asks for", names(event.Actions)}
	ByOutcome = Label{"outcome", "the result", names(Outcomes)}
	ByVersion = Label{Name: "version", Help: "of rsswarden"}
)

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

// The metrics.
var (
	MemoryUsed = Metric{"rsswarden_memory_used_bytes", Gauge,
		"What the enforcer of a limit compares with it: of a cgroup what reclaim cannot take back, of throttle the charge, of slurm the sum that slurmstepd makes, of user the sum by --accounting, of node MemTotal less MemAvailable and used swap, of commit Committed_AS, of shm what /dev/shm holds, of as and memlock VmSize and locked memory of the process that is nearest.",
		[]Label{BySize, ByScope}}
	MemoryUnreclaimable = Metric{"rsswarden_memory_unreclaimable_bytes", Gauge,
		"Charge of the cgroup less what reclaim can take back: file cache, dirty or not, and on v2 reclaimable slab, by memory.stat. Only this can end in an OOM kill.",
		[]Label{ByScope}}
	MemoryCharged = Metric{"rsswarden_memory_charged_bytes", Gauge,
		"All that the kernel charges to the cgroup, page cache with it, by memory.usage_in_bytes or memory.current. It may be at the limit for hours: page cache gives way.",
		[]Label{ByScope}}
	MemoryLimit = Metric{"rsswarden_memory_limit_bytes", Gauge,
		"The limit that rsswarden_memory_used_bytes is compared with, as it is in force now.",
		[]Label{BySize, ByScope}}
	LimitRatio = Metric{"rsswarden_limit_ratio", Gauge,
		"Used over limit, 1 where the job dies; also of limits on numbers: maps, fds, tasks.",
		[]Label{ByLimit, ByScope}}
	TimeToLimit = Metric{"rsswarden_time_to_limit_seconds", Gauge,
		"Forecast time until the limit is met; absent where none is made. Of time what is left until the job's end.",
		[]Label{ByLimit, ByScope}}
	Processes = Metric{"rsswarden_processes", Gauge,
		"Processes that live, zombies left out.",
		[]Label{ByRole}}
	MemoryRSS = Metric{"rsswarden_memory_rss_bytes", Gauge,
		"Resident memory summed over processes; pages that they share count once for each. A run sums VmRSS of /proc/PID/status by role; the daemon sums resident of /proc/PID/statm by step, and where jobs have no memory cgroup alone.",
		[]Label{ByRole}}
	Actions = Metric{"rsswarden_actions_total", Counter,
		"Actions that rules or people asked for, by what came of them.",
		[]Label{ByAction, ByOutcome}}
	MemoryFreed = Metric{"rsswarden_memory_freed_bytes_total", Counter,
		"What actions gave back, measured by the accounting of the limit that they were about.",
		[]Label{ByAction}}
	OOMKills = Metric{"rsswarden_oom_kills_total", Counter,
		"Processes of the job that the kernel's OOM killer ended at least, by oom_kill of memory.events or memory.oom_control, since rsswarden watches.",
		nil}
	OOMUnheard = Metric{"rsswarden_oom_unheard_steps", Gauge,
		"Steps of the node, seen by the daemon, of which the kernel does not tell at once that the OOM killer is at work in them: on cgroup v1 it takes root, and descriptors. Of those that end right after a kill little is known.",
		nil}
	Ranks = Metric{"rsswarden_ranks", Gauge,
		"Ranks of the job on this node that run under rsswarden.",
		nil}
	LastLook = Metric{"rsswarden_last_look_timestamp_seconds", Gauge,
		"Unix time at which these values were read.",
		nil}
	BuildInfo = Metric{"rsswarden_build_info", Gauge,
		"1, with the version that is running.",
		[]Label{ByVersion}}
)

// All lists every metric in the order of the documentation.
var All = []*Metric{
	&MemoryUsed, &MemoryUnreclaimable, &MemoryCharged, &MemoryLimit, &LimitRatio, &TimeToLimit, &Processes, &MemoryRSS,
	&Actions, &MemoryFreed, &OOMKills, &OOMUnheard, &Ranks, &LastLook, &BuildInfo,
}

// OfNode lists those that rsswardend tells of all jobs of a node, OfRun those that a run
// tells of itself.
var (
	OfNode = []*Metric{
		&MemoryUsed, &MemoryUnreclaimable, &MemoryCharged, &MemoryLimit, &LimitRatio, &TimeToLimit,
		&Processes, &MemoryRSS, &OOMKills, &OOMUnheard, &LastLook, &BuildInfo,
	}
	OfRun = []*Metric{
		&MemoryUsed, &MemoryUnreclaimable, &MemoryCharged, &MemoryLimit, &LimitRatio, &TimeToLimit,
		&Processes, &MemoryRSS, &Actions, &MemoryFreed, &OOMKills, &Ranks, &LastLook, &BuildInfo,
	}
)

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
