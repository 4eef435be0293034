package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Such a job is reported for so long that several scrapes see it, maxKilled jobs at most.
const (
	toldFor   = 5 * time.Minute
	maxKilled = 1000
)

// maxSteps bounds what is kept of a job's steps.
const maxSteps = 64

func key(j *nodejobs.Job) string { return j.Node + " " + j.ID }

// oom is what is known of a job that lost processes to the OOM killer.
type oom struct {
	job   nodejobs.Job
	first time.Time         // when the first kill was seen
	near  time.Duration     // for how long nine tenths of the limit were used then
	steps map[string]uint64 // kills by step, of those that were seen
	said  time.Time         // when that was last reported
	// unseen says that no look saw the job.
	unseen bool
}

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

// entry is one line of oom.jsonl.
type entry struct {
	V     int       `json:"v"`
	Time  time.Time `json:"time"`
	JobID string    `json:"jobid"`
	Node  string    `json:"node"`
	UID   *int      `json:"uid"` // null where cgroups do not tell
	// Ended is false in the line of the first kill, and of a daemon that ends before the job.
	// A line of the job's end, which says true, has all of it.
	Ended bool `json:"ended"`
	// OOMKills is how many of its processes the OOM killer ended; Steps has those whose step
	// is known. KnownBy says how: "counter", of the cgroup itself, which is exact; "notice",
	// the kernel told that the step ran out of memory, and the cgroup was gone before its
	// counter could be read: one kill at least; "end", nothing could be told, and this job
	// alone ended within half a second of a kill on the node: likely, not sure.
	OOMKills uint64            `json:"oom_kills"`
	KnownBy  nodejobs.Source   `json:"known_by"`
	Steps    map[string]uint64 `json:"steps"`
	// LimitBytes is null where the job had no limit, which means that the node had no memory
	// left, and where none could be read before it ended.
	LimitBytes *rss.Bytes `json:"limit_bytes"`
	// PeakBytes is the peak of what reclaim cannot take back, as far as looks saw it; null where
	// no look saw the job: it came and went between two.
	PeakBytes *rss.Bytes `json:"peak_bytes"`
	// ChargedBytes is the charge, page cache with it, when it was read last; null for never.
	ChargedBytes *rss.Bytes `json:"charged_bytes"`
	// AtLimit is for how long nine tenths of the limit had been used at the first kill; null
	// where no look saw the job.
	AtLimit   *float64  `json:"at_limit_s"`
	FirstKill time.Time `json:"first_kill"` // when it was seen, up to an interval later than it was
	FirstSeen time.Time `json:"first_seen"` // the job
}

func entryOf(o *oom, ended bool, at time.Time) entry {
	e := entry{
		V: 1, Time: at.UTC(), JobID: o.job.ID, Node: o.job.Node, Ended: ended,
		OOMKills: o.job.OOMKills, KnownBy: o.job.KilledBy, Steps: o.steps, FirstKill: o.first.UTC(), FirstSeen: o.job.Since.UTC(),
	}
	if o.job.UID >= 0 {
		e.UID = &o.job.UID
	}
	if limited(&o.job.Use) {
		e.LimitBytes = &o.job.Limit
	}
	if !o.unseen {
		near := o.near.Seconds()
		e.PeakBytes, e.AtLimit = &o.job.Peak, &near
	}
	if o.job.Charged > 0 {
		e.ChargedBytes = &o.job.Charged
	}
	return e
}

// recordsMost is how large oom.jsonl may become. There is one older file, so that what
// is kept takes twice that.
const recordsMost = 1 << 20

// recordFile is oom.jsonl in a directory.
type recordFile struct {
	dir  string
	file *os.File
	size int64
}

// append adds a line.
func (r *recordFile) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("cannot encode the record of job %s: %w", e.JobID, err)
	}
	line = append(text.JSON(line), '\n')
	if r.file != nil && r.size+int64(len(line)) > recordsMost {
		r.close()
	}
	if r.file == nil {
		err = r.open(int64(len(line)))
	}
	if err == nil {
		var n int
		n, err = r.file.Write(line)
		r.size += int64(n)
	}
	if err != nil {
		r.close()
		return fmt.Errorf("cannot keep the record of job %s: %w", e.JobID, err)
	}
	return nil
}

// open opens the file for so many bytes more, and moves one that is full aside.
func (r *recordFile) open(more int64) error {
	name := filepath.Join(r.dir, "oom.jsonl")
	if info, err := os.Lstat(name); err == nil && info.Size()+more > recordsMost {
		if err := os.Rename(name, name+".1"); err != nil {
			return err
		}
	}
	var err error
	r.file, r.size, err = openRecords(name, os.O_CREATE)
	return err
}

// openRecords opens a file to append to. Others may be able to make files in its
// directory: no link is followed and no pipe waited for, and what is there must be a
// file of ours or of root's under that name alone.
func openRecords(name string, flags int) (f *os.File, size int64, err error) {
	f, err = os.OpenFile(name, flags|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is no regular file", name)
	case !ok || int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return nil, 0, fmt.Errorf("%s belongs to user %d", name, st.Uid)
	case st.Nlink != 1:
		return nil, 0, fmt.Errorf("%s has another name too", name)
	}
	return f, info.Size(), nil
}

// check says why a file that is there cannot be written.
func (r *recordFile) check() error {
	f, _, err := openRecords(filepath.Join(r.dir, "oom.jsonl"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = f.Close()
	}
	return err
}

func (r *recordFile) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
