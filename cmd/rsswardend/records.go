package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// entry is one line of oom.jsonl.
type entry struct {
	V     int       `json:"v"`
	Time  time.Time `json:"time"`
	JobID string    `json:"jobid"`
	Node  string    `json:"node"`
	UID   *int      `json:"uid"` // null where cgroups do not tell
	// Ended is false where the daemon ended before the job.
	Ended bool `json:"ended"`
	// OOMKills is how many of its processes the OOM killer ended; Steps has those whose step
	// is known.
	OOMKills uint64            `json:"oom_kills"`
	Steps    map[string]uint64 `json:"steps"`
	// LimitBytes is null where the job had no limit: the node had no memory left.
	LimitBytes *rss.Bytes `json:"limit_bytes"`
	PeakBytes  rss.Bytes  `json:"peak_bytes"` // of what reclaim cannot take back, as far as looks saw it
	// AtLimit is for how long nine tenths of the limit had been used at the first kill.
	AtLimit   float64   `json:"at_limit_s"`
	FirstKill time.Time `json:"first_kill"` // when it was seen, up to an interval later than it was
	FirstSeen time.Time `json:"first_seen"` // the job
}

func entryOf(o *oom, ended bool, at time.Time) entry {
	e := entry{
		V: 1, Time: at.UTC(), JobID: o.job.ID, Node: o.job.Node, Ended: ended,
		OOMKills: o.job.OOMKills, Steps: o.steps, PeakBytes: o.job.Peak,
		AtLimit: o.near.Seconds(), FirstKill: o.first.UTC(), FirstSeen: o.job.Since.UTC(),
	}
	if o.job.UID >= 0 {
		e.UID = &o.job.UID
	}
	if limited(&o.job.Use) {
		e.LimitBytes = &o.job.Limit
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
	line = append(line, '\n')
	if r.file != nil && r.size+int64(len(line)) > recordsMost {
		r.close()
	}
	if r.file == nil {
		if err := r.open(int64(len(line))); err != nil {
			return fmt.Errorf("cannot keep the record of job %s: %w", e.JobID, err)
		}
	}
	n, err := r.file.Write(line)
	r.size += int64(n)
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
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		f.Close()
		return err
	}
	r.file, r.size = f, info.Size()
	return nil
}

func (r *recordFile) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
