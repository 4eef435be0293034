package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// RequeueEntry is one line of the log of requeues that a job keeps beside its journals, for its next
// attempt and for reports. Each line is complete: the writer may be killed after any.
type RequeueEntry struct {
	V       int       `json:"v"`
	Time    time.Time `json:"time"`
	Job     string    `json:"job"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	Run     string    `json:"run,omitempty"` // whose record it is
	// Restart is SLURM_RESTART_COUNT of the attempt that ends: 0 for the first.
	Restart int    `json:"restart"`
	Rule    string `json:"rule,omitempty"`
	Because string `json:"because,omitempty"` // for people
	// FromMiB is what the job had on each node, ToMiB what it is to have.
	FromMiB uint64 `json:"from_mib"`
	ToMiB   uint64 `json:"to_mib"`
	// Step is one of slurm.StepHold, slurm.StepUpdate …, or RequeueBegun; OK, Error
	// and Detail say how it ended.
	Step   string `json:"step"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// RequeueBegun is the step of the first line, written before anything is done.
const RequeueBegun = "begun"

const (
	requeuePrefix = "requeue-"
	// mostRequeueLog bounds what is read of such a file, the end of it.
	mostRequeueLog = 64 << 10
	// requeueLogOld is after how long a file is of another job: Slurm begins its numbers
	// again some day.
	requeueLogOld = 90 * 24 * time.Hour
)

func requeueLogName(job string) string { return requeuePrefix + filepath.Base(job) + journalSuffix }

// OpenRequeueLog opens the file of a job for [RequeueEntry.Write], in the first place that takes
// it. It may hang where the file system does.
func OpenRequeueLog(p Places, job string) (*os.File, error) {
	f, err := openInFirst(p.Journals, requeueLogName(job))
	if err != nil {
		return nil, fmt.Errorf("cannot make the file of requeued job %s: %w", job, err)
	}
	return f, nil
}

// Write appends a line, in one write: two nodes may do so at once.
func (l RequeueEntry) Write(w io.Writer) error {
	l.V = Version
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text.JSON(b), '\n'))
	return err
}

// ReadRequeueLog returns what a job has left behind, the oldest first. It may hang
// where a file system does. What is malformed is left out.
func ReadRequeueLog(p Places, job, cluster string, now time.Time) []RequeueEntry {
	var all []RequeueEntry
	for _, place := range p.Journals {
		all = append(all, readRequeueLog(filepath.Join(place, requeueLogName(job)), job, cluster, now)...)
	}
	return all
}

func readRequeueLog(path, job, cluster string, now time.Time) (all []RequeueEntry) {
	dir, err := nodedir.Open(filepath.Dir(path))
	if err != nil {
		return nil
	}
	defer dir.Close()
	f, err := nodedir.OpenRegular(dir, filepath.Base(path))
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	if size := info.Size(); size > mostRequeueLog {
		if _, err := f.Seek(size-mostRequeueLog, io.SeekStart); err != nil {
			return nil
		}
	}
	for s := bufio.NewScanner(io.LimitReader(f, mostRequeueLog)); s.Scan(); {
		var l RequeueEntry
		if json.Unmarshal(bytes.TrimSpace(s.Bytes()), &l) != nil || l.V != Version || l.Job != job || l.Step == "" || l.Restart < 0 {
			continue
		}
		if now.Sub(l.Time) > requeueLogOld || cluster != "" && l.Cluster != "" && l.Cluster != cluster {
			continue
		}
		all = append(all, l)
	}
	return all
}

type Requeued struct {
	RequeueEntry // its first line
	Held, Raised bool
	Errors       []string
}

// LastRequeue returns how the last attempt before restart ended, by the lines. ok is false
// where none of them is of a requeued one.
func LastRequeue(lines []RequeueEntry, restart int) (r Requeued, ok bool) {
	last := -1
	for _, l := range lines {
		if l.Restart < restart {
			last = max(last, l.Restart)
		}
	}
	for _, l := range lines {
		if l.Restart != last || last < 0 {
			continue
		}
		if r.Step == "" || r.Run != l.Run && !r.Held {
			r = Requeued{RequeueEntry: l} // of two nodes, the one that was first
		}
		if l.Run != r.Run {
			continue
		}
		if !l.OK && l.Error != "" {
			r.Errors = append(r.Errors, l.Step+": "+strings.Join(strings.Fields(l.Error), " "))
		}
		switch {
		case !l.OK:
		case l.Step == stepHold:
			r.Held = true
		case l.Step == stepUpdate:
			r.Raised = true
		}
	}
	return r, r.Held
}

// As package slurm has them.
const (
	stepHold   = "requeuehold"
	stepUpdate = "update"
)
