package supervisor

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
)

// recordEvery is the least time between two samples of the record, but for those
// at a decision.
const recordEvery = time.Second

// Name names the run that begins now, so that it can be recorded.
func (s *Settings) Name(lookup func(string) (string, bool)) {
	s.Begun, s.BegunMono = time.Now(), monotonic()
	s.RunID = record.NewID(s.Begun, RecordJob(lookup), slurm.NodeName(lookup), runNumber("/proc/self/ns/pid", os.Getpid()))
}

// runNumber tells a run from the others of its job that began in the same second:
// by the PID of its holder, and the PID namespace where that is a container's: in
// each the first process has the same PID.
func runNumber(link string, pid int) int {
	const (
		initial = 0xEFFFFFFC // PROC_PID_INIT_INO of linux/proc_ns.h
		pidBits = 22         // of the largest PID, PID_MAX_LIMIT of linux/threads.h
	)
	text, _ := os.Readlink(link)
	number, _ := strings.CutSuffix(strings.TrimPrefix(text, "pid:["), "]")
	space, err := strconv.ParseUint(number, 10, 32)
	if err != nil || space == initial {
		return pid
	}
	return int(space)<<pidBits | pid
}

// monotonic is the time by CLOCK_MONOTONIC, which all processes of a node share;
// 0 where it cannot be read.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// startRecording makes the recorder of this run.
func (w *watcher) startRecording(begin hold.Begin) {
	s := &w.Settings
	if s.RunID == "" || s.Record == RecordNone || begin.Last && begin.Attempt > 1 {
		return // what killed watchers before may have been the record
	}
	places := record.DefaultPlaces(w.Lookup, os.Geteuid())
	if s.Record != RecordAuto {
		places.Records, places.Chosen = []string{s.Record}, true
	}
	if s.RecordFault != "" {
		places.Records = nil
	}
	silent := ""
	if s.RecordFault != "" {
		silent = "record" // it was told already
	}
	w.tell.OpenRecord(store.Options{Meta: w.recordMeta(begin), Places: places, Attempt: begin.Attempt, AtOnce: s.Record != RecordAuto}, silent)
}

func (w *watcher) recordMeta(begin hold.Begin) record.Meta {
	s := &w.Settings
	m := record.Meta{
		ID: s.RunID, Start: s.Begun, Mono: s.BegunMono, Version: s.Version, Command: s.Command, UID: os.Geteuid(),
		Holder: begin.Holder, Process: w.pop.Command, Attached: w.pop.Attached(),
		BootID: w.firstLine("sys/kernel/random/boot_id"),
	}
	m.Dir, _ = unix.Getwd() // the kernel knows it: os.Getwd asks its file system, which may hang
	m.MaxMapCount, _ = strconv.ParseUint(w.firstLine("sys/vm/max_map_count"), 10, 64)
	var files unix.Rlimit
	if err := unix.Prlimit(begin.PID, unix.RLIMIT_NOFILE, nil, &files); err == nil {
		m.MaxFDs = files.Cur
	}
	m.Job = RecordJob(w.Lookup)
	m.Node = slurm.NodeName(w.Lookup)
	return m
}

func (w *watcher) firstLine(name string) string {
	b, _ := procfile.Read(w.Proc+"/"+name, procfile.Small)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// RecordJob is the Slurm job that this process is in, nil outside Slurm.
func RecordJob(lookup func(string) (string, bool)) *record.Job {
	job, ok := slurm.FromEnv(lookup)
	if !ok {
		return nil
	}
	if b, err := procfile.Read("/proc/self/cgroup", procfile.Small); err == nil {
		job = job.InCgroup(b)
	}
	dir, _ := lookup("SLURM_SUBMIT_DIR")
	return &record.Job{
		ID: job.ID, Step: job.StepID, Task: job.Task, Tasks: job.Tasks, NodeID: job.NodeID, Nodes: job.Nodes,
		Name: job.Name, Partition: job.Partition, Cluster: job.Cluster, ArrayJob: job.ArrayJob, ArrayTask: job.ArrayTask,
		Restarts: job.Restarts, End: job.End, Dir: dir,
	}
}

// runTime is the time since the run began, of which an earlier watcher may have
// seen the start.
func (w *watcher) runTime() time.Duration {
	if now := monotonic(); w.Settings.BegunMono > 0 && now >= w.Settings.BegunMono {
		return now - w.Settings.BegunMono
	}
	return max(w.started.Sub(w.Settings.Begun), 0) + time.Since(w.started)
}

// recordSample gives the last look to the record, where it is due.
func (w *watcher) recordSample(atDecision bool) {
	r := &w.tell.Record
	if !r.Due(w.now(), max(w.Settings.Interval, recordEvery)-sameWake, w.seq, atDecision) {
		return
	}
	r.To.Sample(&record.Look{
		At: w.runTime(), AtDecision: atDecision, Sample: &w.last, Limits: w.readings,
		Self: w.Self, Holder: w.pop.Holder, Counts: w.counts.Of,
	})
}

// noteStart has the record of an heir begin as others do, with the rules and what
// else was set: nothing was recorded when that was told. It comes after the lead was
// told of, so that each lead of a record that has several has its own.
func (w *watcher) noteStart() {
	if w.peers.heir {
		w.tell.Note(event.NameStart, func(h event.Head) any { return w.startEvent(h, w.Link.Begin()) })
	}
}
