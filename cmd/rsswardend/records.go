package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

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
