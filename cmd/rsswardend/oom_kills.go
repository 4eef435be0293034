package main

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// Such a job is reported for so long that several scrapes see it, maxKilled jobs at most.
const (
	toldFor   = 5 * time.Minute
	maxKilled = 1000
)

// maxSteps bounds what is kept of a job's steps.
const maxSteps = 64

func key(j *nodejobs.Job) string { return j.Node + " " + j.ID }

// watchOOM reports kills as they are seen, and at its end records each job that had some.
func (d *daemon) watchOOM(s *nodejobs.Snapshot) {
	seen := uint64(0)
	for i := range s.Ended {
		e := &s.Ended[i]
		seen += d.hit(&e.Job, s.At)
		if o := d.oom[key(&e.Job)]; o != nil {
			o.unseen = e.Unseen
			d.record(o, true, e.Last)
			delete(d.oom, key(&e.Job))
			if len(d.killed) < maxKilled {
				d.killed[key(&e.Job)] = killed{o.job.ID, o.job.Node, o.job.OOMKills, s.At}
			}
		}
	}
	d.forget(s)
	for i := range s.Jobs {
		known := d.oom[key(&s.Jobs[i])] != nil
		seen += d.hit(&s.Jobs[i], s.At)
		if o := d.oom[key(&s.Jobs[i])]; o != nil && !known {
			d.record(o, false, s.At) // we may not see its end
		}
	}
	if s.Kills > seen {
		var ended []string
		for i := range s.Ended[:min(len(s.Ended), 20)] {
			ended = append(ended, s.Ended[i].ID)
		}
		d.log.Info("the OOM killer ended processes of no job, or of one whose cgroup was gone before it was read",
			"kills", s.Kills-seen, "ended_since", ended)
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

// hit takes in the kills of a job, reports new ones and returns how many.
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
		if kills := step.OOMKills; kills > 0 && (o.steps[step.ID] > 0 || len(o.steps) < maxSteps) {
			o.steps[step.ID] = max(o.steps[step.ID], kills)
		}
	}
	more = j.OOMKills - min(j.OOMKills, o.job.OOMKills)
	// A job whose processes are killed again and again has no say in how long the log is:
	// all are counted in the next line, or in the one about its end.
	if more > 0 && (o.said.IsZero() || at.Sub(o.said) >= time.Minute) {
		o.said = at
		d.log.Warn("the OOM killer ended processes of a job", "jobid", j.ID, "node", j.Node, "uid", j.UID,
			"kills", j.OOMKills, "known_by", j.KilledBy, "steps", o.steps, "limit", size(j), "peak", j.Peak.String(), "at_limit_for", j.Near.Round(time.Second))
	}
	o.job = *j
	o.job.Steps, o.job.Over = nil, nil
	return more
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
		d.complain("a record is lost", d.file.append(entryOf(o, ended, at)))
	}
	if ended {
		d.log.Info("a job that the OOM killer hit has ended", "jobid", o.job.ID, "node", o.job.Node, "uid", o.job.UID, "kills", o.job.OOMKills)
	}
}
