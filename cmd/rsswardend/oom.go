package main

import (
	"maps"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// oom is what is known of a job that lost processes to the OOM killer.
type oom struct {
	job   nodejobs.Job
	first time.Time         // when the first kill was seen
	near  time.Duration     // for how long nine tenths of the limit were used then
	steps map[string]uint64 // kills by step, of those that were seen
}

// killed is what is told of a job that the OOM killer hit and that has ended. Most end
// within the second, which no scrape is in: an alert on the count would never fire.
type killed struct {
	id, node string
	kills    uint64
	ended    time.Time
}

// It is told for long enough that several scrapes see it, of mostKilled jobs at most.
const (
	toldFor    = 5 * time.Minute
	mostKilled = 1000
)

// mostSteps bounds what is kept of a job's steps.
const mostSteps = 64

func key(j *nodejobs.Job) string { return j.Node + " " + j.ID }

// watchOOM tells of kills as they are seen, and keeps a record of each job that had some
// when it ends.
func (d *daemon) watchOOM(s *nodejobs.Snapshot) {
	for i := range s.Ended {
		e := &s.Ended[i]
		if o := d.oom[key(&e.Job)]; o != nil {
			d.record(o, true, e.Last)
			delete(d.oom, key(&e.Job))
			if len(d.killed) < mostKilled {
				d.killed[key(&e.Job)] = killed{o.job.ID, o.job.Node, o.job.OOMKills, s.At}
			}
		}
	}
	d.forget(s)
	seen := uint64(0)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.OOMKills == 0 {
			continue
		}
		o := d.oom[key(j)]
		if o == nil {
			o = &oom{first: s.At, near: j.Near, steps: map[string]uint64{}}
			d.oom[key(j)] = o
		}
		for k := range j.Steps {
			step := &j.Steps[k]
			if more := step.OOMKills; more > 0 && (o.steps[step.ID] > 0 || len(o.steps) < mostSteps) {
				o.steps[step.ID] = max(o.steps[step.ID], more)
			}
		}
		if j.OOMKills > o.job.OOMKills {
			seen += j.OOMKills - o.job.OOMKills
			d.log.Warn("the OOM killer ended processes of a job", "jobid", j.ID, "node", j.Node, "uid", j.UID,
				"kills", j.OOMKills, "steps", o.steps, "limit", size(j), "peak", j.Peak.String(), "at_limit_for", j.Near.Round(time.Second))
		}
		o.job = *j
		o.job.Steps = nil
	}
	if s.Kills > seen {
		d.log.Info("the OOM killer ended processes of no job, or of one whose cgroup was gone before it was read",
			"kills", s.Kills-seen, "ended_since", ids(s.Ended))
	}
}

// forget drops what has been told for long enough, and jobs that were requeued and are
// here again.
func (d *daemon) forget(s *nodejobs.Snapshot) {
	if len(d.killed) == 0 {
		return
	}
	maps.DeleteFunc(d.killed, func(_ string, k killed) bool { return s.At.Sub(k.ended) >= toldFor })
	for i := range s.Jobs {
		delete(d.killed, key(&s.Jobs[i]))
	}
}

// ids names jobs, a few of them.
func ids(jobs []nodejobs.Ended) []string {
	var list []string
	for i := range jobs[:min(len(jobs), 20)] {
		list = append(list, jobs[i].ID)
	}
	return list
}

// size is a job's limit for people.
func size(j *nodejobs.Job) string {
	if !limited(&j.Use) {
		return "none"
	}
	return j.Limit.String()
}

// record keeps what is known of a job, and then says so.
func (d *daemon) record(o *oom, ended bool, at time.Time) {
	if d.file != nil {
		if err := d.file.append(entryOf(o, ended, at)); err != nil {
			d.complain("", err)
		}
	}
	if ended {
		d.log.Info("a job that the OOM killer hit has ended", "jobid", o.job.ID, "node", o.job.Node, "uid", o.job.UID, "kills", o.job.OOMKills)
	}
}
