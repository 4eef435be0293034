package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// This file holds the sentences on memory: one for each way in which it ends a
// run.

// byKernel tells of a kill that the kernel counted.
func (q *inquest) byKernel(d death) finding {
	f := finding{cause: event.CauseKernelOOM, certainty: Seen, limit: -1}
	b, ok := q.fullest(event.LimitCgroup)
	node, onNode := q.fullest(event.LimitNode)
	var why string
	switch {
	case onNode && node.near() && (!ok || !b.near()):
		f.cause, f.limit, why = event.CauseNodeOOM, node.i, q.nodeText(node)
	case ok:
		f.limit, why = b.i, q.kernelText(q.highestOf(b))
	default:
		why = "no limit of a cgroup is in the record, so it is not known which was full"
	}
	if d.by("SIGKILL", 9) {
		f.text = "killed by the kernel: " + why
		return f
	}
	victims := "one of its processes"
	if n := q.kernelKills(); n > 1 {
		victims = values.Digits(n) + " of its processes"
	}
	f.text = fmt.Sprintf("the kernel's OOM killer ended %s: %s; the command then ended with %s", victims, why, d)
	if d.ok() && q.run.Meta.Job != nil {
		f.text += ", but Slurm calls a job with such a kill OUT_OF_MEMORY"
	}
	return f
}

// kernelText is which cgroup was full: "cgroup /…/job_12 (the job's --mem,
// 3000M) was full: 2.92 GiB of 2.93 GiB could not be reclaimed at 14:03:22,
// 0.4 s before".
func (q *inquest) kernelText(b brink) string {
	where := "cgroup " + q.level(b)
	when := "at its highest"
	if b.at >= 0 {
		when = q.when(b.at)
	}
	held := fmt.Sprintf("%v of %v could not be reclaimed %s", rss.Bytes(b.used), rss.Bytes(b.size), when)
	switch {
	case b.ratio >= nearFull:
		return where + " was full: " + held
	case b.rate > 0:
		return where + " filled up: " + held + q.grew(b)
	}
	return fmt.Sprintf("%s is the limit that was nearest, and %s (%s): it grew faster than it was sampled, or another limit was full", where, held, values.Percent(b.ratio))
}

// highestOf is a cgroup that the kernel has counted a kill in, as the exit event
// has it where samples missed that it was full.
func (q *inquest) highestOf(b brink) brink {
	if b.near() {
		return b
	}
	n := q.exit.Binding
	switch {
	case n != nil && n.Name == event.LimitCgroup && uint64(n.Limit) == b.size && n.Ratio() >= nearFull:
		b.used, b.ratio, b.at, b.rate = uint64(n.Used), n.Ratio(), -1, 0
	case b.closing():
		b.rate = b.growth
	}
	return b
}

// grew tells a rate that was carried on beyond the last reading.
func (q *inquest) grew(b brink) string {
	return fmt.Sprintf(", and grew by %v a second, at which it was full soon after", rss.Bytes(b.rate))
}

// level names a cgroup and whose limit it is.
func (q *inquest) level(b brink) string {
	text := short(clean(b.Level))
	size := rss.Bytes(b.size)
	switch b.Scope {
	case event.ScopeJob, event.ScopeStep:
		what := "limit"
		if q.said != nil && q.said.reqMem() == size {
			what = "--mem"
		}
		value := memArg(size)
		if value == "" {
			value = size.String()
		}
		return strings.TrimSpace(fmt.Sprintf("%s (the %s's %s, %s)", text, b.Scope, what, value))
	}
	return text
}

// cgroupFull tells of a full cgroup and a SIGKILL that nobody counted as the
// kernel's.
func (q *inquest) cgroupFull(b brink, d death) finding {
	f := finding{cause: event.CauseKernelOOM, certainty: Inferred, limit: b.i, text: "killed by the kernel: " + q.kernelText(b)}
	if q.rank != nil {
		// The record counts the kills of its own rank, and of all of the job where
		// the kernel does.
		return f
	}
	if d.seen {
		f.text += ", though no OOM kill was counted"
	} else {
		f.text += "; the watcher was killed as well, as memory.oom.group does"
	}
	return f
}

// overMemory tells of OverMemoryKill.
func (q *inquest) overMemory(b brink, d death) finding {
	f := finding{cause: event.CauseOverKill, certainty: Inferred, limit: b.i}
	what, _, _ := strings.Cut(b.Compared(), ",") // that it is the step's is said in any case
	note := ""
	switch b.Accounting {
	case event.AccountingRSS:
		note = ", counting shared pages once for each process"
	case event.AccountingPSS:
		note = ", shared pages divided among those that map them"
	case event.AccountingVirtual:
		note = ", which VSizeFactor limits"
	}
	who := "slurmstepd (OverMemoryKill)"
	if strings.Contains(b.Enforcer, "perhaps") {
		who = "slurmstepd, which here may use OverMemoryKill"
	}
	f.text = fmt.Sprintf("killed by %s: the %s of %s was %v of %v %s%s", who, what, q.whose(b), rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at), note)
	if b.rate > 0 {
		f.text += q.grew(b)
	}
	return f
}

// whose names the step or job that slurmstepd sums.
func (q *inquest) whose(b brink) string {
	if b.Level != "" {
		return "step " + clean(b.Level)
	}
	if j := q.run.Meta.Job; j != nil && j.Step != "" {
		return "step " + clean(j.ID+"."+j.Step)
	}
	return "the step"
}

// nodeMemory tells of a SIGKILL on a node without memory.
func (q *inquest) nodeMemory(b brink, d death) finding {
	f := finding{cause: event.CauseNodeOOM, certainty: Inferred, limit: b.i, text: "killed by the kernel: " + q.nodeText(b)}
	if d.seen {
		f.text += ", though no OOM kill of this run was counted"
	}
	return f
}

func (q *inquest) nodeText(b brink) string {
	text := fmt.Sprintf("the node had no memory left: %v of %v was used (MemTotal less MemAvailable, everything on the node) %s",
		rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at))
	if b.ratio < nearFull {
		text += q.grew(b)
	}
	return text
}

// soFar is how long ago something was, for a run that has not ended.
func soFar(now, at time.Time) string { return values.Span(max(now.Sub(at), 0)) + " ago" }
