package main

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// oom is what is known of a job that lost processes to the OOM killer.
type oom struct {
	job   nodejobs.Job
	first time.Time         // when the first kill was seen
	near  time.Duration     // for how long nine tenths of the limit were used then
	steps map[string]uint64 // kills by step, of those that were seen
	// unseen says that no look saw the job.
	unseen bool
}

// mostSteps bounds what is kept of a job's steps.
const mostSteps = 64

func key(j *nodejobs.Job) string { return j.Node + " " + j.ID }

// watchOOM tells of kills as they are seen, and keeps a record of each job that had some
// when it ends.
func (d *daemon) watchOOM(s *nodejobs.Snapshot) {
	seen := uint64(0)
	for i := range s.Ended {
		e := &s.Ended[i]
		seen += d.hit(&e.Job, s.At)
		if o := d.oom[key(&e.Job)]; o != nil {
			o.unseen = e.Unseen
			d.record(o, true, e.Last)
			delete(d.oom, key(&e.Job))
		}
	}
	for i := range s.Jobs {
		seen += d.hit(&s.Jobs[i], s.At)
	}
	if s.Kills > seen {
		d.log.Info("the OOM killer ended processes of no job, or of one whose cgroup was gone before it was read",
			"kills", s.Kills-seen, "ended_since", ids(s.Ended))
	}
}

// hit takes in the kills of a job, tells of those that are new and returns how many.
func (d *daemon) hit(j *nodejobs.Job, at time.Time) (more uint64) {
	if j.OOMKills == 0 {
		return 0
	}
	o := d.oom[key(j)]
	if o == nil {
		o = &oom{first: at, near: j.Near, steps: map[string]uint64{}}
		d.oom[key(j)] = o
	}
	for _, step := range slices.Concat(j.Steps, j.Over) {
		if kills := step.OOMKills; kills > 0 && (o.steps[step.ID] > 0 || len(o.steps) < mostSteps) {
			o.steps[step.ID] = max(o.steps[step.ID], kills)
		}
	}
	if j.OOMKills > o.job.OOMKills {
		more = j.OOMKills - o.job.OOMKills
		d.log.Warn("the OOM killer ended processes of a job", "jobid", j.ID, "node", j.Node, "uid", j.UID,
			"kills", j.OOMKills, "known_by", j.KilledBy, "steps", o.steps, "limit", size(j), "peak", j.Peak.String(), "at_limit_for", j.Near.Round(time.Second))
	}
	o.job = *j
	o.job.Steps, o.job.Over = nil, nil
	return more
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
