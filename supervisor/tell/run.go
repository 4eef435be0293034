package tell

import (
	"cmp"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// Run identifies a run in all its outputs.
type Run struct {
	ID, Version string // ID names its record, see [NameRun]
	Command     []string
	Begun       time.Time
	BegunMono   time.Duration // … by CLOCK_MONOTONIC, 0 where that is not known
	Interval    time.Duration // of samples
	Lookup      func(string) (string, bool)
	Node        string
	Job         *record.Job // nil outside Slurm
	Proc        string
	Process     rss.ProcID // the command
	Holder      int        // its holder, 0 where this watcher has attached
	WholeJob    bool       // … to a job
	Self        int        // this watcher
}

// NewRun is the run of these settings.
func NewRun(s *settings.Run, proc string, lookup func(string) (string, bool)) Run {
	return Run{
		ID: s.RunID, Version: s.Version, Command: s.Command, Begun: s.Begun, BegunMono: s.BegunMono, Interval: s.Interval,
		Lookup: lookup, Node: slurm.NodeName(lookup), Job: JobOf(lookup), Proc: proc,
	}
}

// NameRun names the run that begins now, so that it can be recorded.
func NameRun(s *settings.Run, lookup func(string) (string, bool)) {
	s.Begun, s.BegunMono = time.Now(), Monotonic()
	s.RunID = record.NewID(s.Begun, JobOf(lookup), slurm.NodeName(lookup), runNumber("/proc/self/ns/pid", os.Getpid()))
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

// Monotonic is the time by CLOCK_MONOTONIC, which all processes of a node share;
// 0 where it cannot be read.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// JobOf is the Slurm job that this process is in, nil outside Slurm.
func JobOf(lookup func(string) (string, bool)) *record.Job {
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

// Took is the time since the run began, of which an earlier watcher may have seen the
// start; since is when this one began.
func (r *Run) Took(since time.Time) time.Duration {
	if now := Monotonic(); r.BegunMono > 0 && now >= r.BegunMono {
		return now - r.BegunMono
	}
	return max(since.Sub(r.Begun), 0) + time.Since(since)
}

// brief says that the run has not lived for [Brief] yet. It is false where we attached to
// what runs already, or do not know the start.
func (r *Run) brief() bool {
	now := Monotonic()
	return r.Holder != 0 && r.BegunMono > 0 && now >= r.BegunMono && now-r.BegunMono < Brief
}

// Label is a short word for the run, made of its name.
func (r *Run) Label() string { return record.Label(r.ID) }

// Place is what the metrics of the run are known by. attached names the job, or the step
// of one, that is watched from outside. A job that is watched as a whole has no step.
func (r *Run) Place(attached string) metrics.Place {
	at := metrics.Place{Node: r.Node, Run: r.Label()}
	if r.Holder != 0 {
		at.JobID, at.Step = r.jobAndStep()
	} else if attached != "" {
		at.JobID, at.Step, _ = strings.Cut(attached, ".")
	} else if job, ok := slurm.FromEnv(r.Lookup); ok {
		at.JobID, at.Step = job.ID, job.StepID
	}
	return at
}

func (r *Run) jobAndStep() (id, step string) {
	if r.Job == nil {
		return "", ""
	}
	return r.Job.ID, r.Job.Step
}

// textfile names the file of metrics of the run.
func (r *Run) textfile(at metrics.Place) textfile.Name {
	return textfile.Of(r.Proc, r.watcher(), at.JobID, at.Step, at.Node)
}

// meta is what the record says of the run as a whole.
func (r *Run) meta() record.Meta {
	m := record.Meta{
		ID: r.ID, Start: r.Begun, Mono: r.BegunMono, Version: r.Version, Command: r.Command, UID: os.Geteuid(),
		Holder: r.Holder, Process: r.Process, Attached: r.Holder == 0, Job: r.Job, Node: r.Node,
		BootID: r.BootID(),
	}
	m.Dir, _ = unix.Getwd() // the kernel knows it: os.Getwd asks its file system, which may hang
	m.MaxMapCount, _ = strconv.ParseUint(firstLine(r.Proc+"/sys/vm/max_map_count"), 10, 64)
	var files unix.Rlimit
	if err := unix.Prlimit(r.Process.PID, unix.RLIMIT_NOFILE, nil, &files); err == nil {
		m.MaxFDs = files.Cur
	}
	return m
}

// watcher is the process whose end is that of the run: its holder, or who attached.
func (r *Run) watcher() int { return cmp.Or(r.Holder, r.Self) }

// indexEntry is what the list of runs shows of the run; exit is nil at its start.
func (r *Run) indexEntry(exit *event.Exit, took time.Duration) record.IndexEntry {
	e := record.IndexEntry{
		ID: r.ID, Start: r.Begun.Round(time.Second), Outcome: event.RunRunning, Seconds: math.Round(took.Seconds()*10) / 10,
		Node: r.Node, Command: text.Command(r.Command, record.MostListed), User: strconv.Itoa(os.Geteuid()),
	}
	if e.Job, _ = r.jobAndStep(); r.Job != nil {
		e.Array, e.Restart = slurm.ArrayTask(r.Job.ArrayJob, r.Job.ArrayTask), r.Job.Restarts
	}
	// A user database may be on a server that hangs.
	for _, name := range []string{"SLURM_JOB_USER", "USER", "LOGNAME"} {
		if user, ok := r.Lookup(name); ok && user != "" {
			e.User = user
			break
		}
	}
	if exit == nil {
		e.Watcher.PID, e.Watcher.BootID = r.watcher(), r.BootID()
		e.Watcher.Start, _ = proctree.StartTime(r.Proc, e.Watcher.PID)
		return e
	}
	e.Outcome = exit.Outcome
	e.SetEnd(exit.Code, exit.Signal, exit.Binding)
	return e
}

// BootID names this boot of the node.
func (r *Run) BootID() string { return firstLine(r.Proc + "/sys/kernel/random/boot_id") }

func firstLine(file string) string {
	b, _ := procfile.Read(file, procfile.Small)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
