package control

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Version is the first element of every path, and "v" of every answer. Fields are
// only ever added.
const Version = 1

// Status is the state of one node, as the leader saw it last. GET /v1/status
// answers it.
type Status struct {
	V    int       `json:"v"`
	Time time.Time `json:"time"` // when the processes and limits were read
	Node string    `json:"node"`
	Job  string    `json:"job,omitempty"` // SLURM_JOB_ID, empty outside Slurm
	// Leader is the watcher that answers; Version what it is.
	Leader  int       `json:"leader_pid"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // when it began to lead

	Ranks []Rank `json:"ranks"`
	// Limits are in the order in which they would fire.
	Limits []Limit `json:"limits"`
	// Peak is the reading that came nearest to its limit so far, and Saved the ledger of
	// actions; nil where the leader is an older one.
	Peak  *event.Limit `json:"peak,omitempty"`
	Saved *event.Saved `json:"saved,omitempty"`
	Procs []Proc       `json:"procs"`
	Gaps  rss.Gaps     `json:"gaps"` // processes that could not be read, by reason
	// Rules is the ladder, from mild to hard; DryRun that nothing of it is done.
	Rules  []string `json:"rules"`
	DryRun bool     `json:"dry_run,omitempty"`
	// Action is what is being done now, nil for nothing; Last are the newest
	// outcomes, the newest first, at most 8.
	Action *Action   `json:"action"`
	Last   []Outcome `json:"last"`
	// Alerts says how the receivers of --alert stand.
	Alerts []Alerts `json:"alerts,omitempty"`
	// Ours is what the holders and watchers of this node cost.
	Ours []event.Cost `json:"ours,omitempty"`
}

// Limit is a limit as the sample of [Status.Time] had it, with what was measured of it.
type Limit struct {
	event.Limit
	Measured
}

// Measured is what was measured of a limit beside one sample of it.
type Measured struct {
	// Growth is the change of what is used in bytes a second over the last seconds, nil
	// where it was not read for so long.
	Growth *float64 `json:"growth_bytes_per_s"`
	// Now is a reading newer than the sample, of NowAt; nil where there is none.
	Now   *rss.Bytes `json:"now_bytes,omitempty"`
	NowAt *time.Time `json:"now_time,omitempty"`
}

// MarshalJSON writes the fields of both as those of one object.
func (l Limit) MarshalJSON() ([]byte, error) { return event.Beside(l.Limit, l.Measured) }

// UnmarshalJSON reads what MarshalJSON wrote, and the limit of an older leader.
func (l *Limit) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &l.Limit); err != nil {
		return err
	}
	return json.Unmarshal(b, &l.Measured)
}

// Alerts is one receiver of --alert and what became of the alerts for it.
type Alerts struct {
	Receiver string `json:"receiver"` // without what is secret in its URL
	Firing   int    `json:"firing"`   // alerts
	Sent     int    `json:"sent"`     // requests that were taken
	Failed   int    `json:"failed"`   // … that were not
	Lost     int    `json:"lost"`     // alerts whose last state was given up before it took it
	Untold   int    `json:"untold"`   // alerts whose state it does not know yet
	// Held says that there is something to send, and that it waits, as too little
	// memory is left for the process that would send it.
	Held     bool       `json:"held,omitempty"`
	Failing  bool       `json:"failing,omitempty"` // the last try failed
	SentAt   *time.Time `json:"sent_at,omitempty"`
	FailedAt *time.Time `json:"failed_at,omitempty"`
	Error    string     `json:"error,omitempty"` // the last failure
}

// Rank is one command under rsswarden on this node.
type Rank struct {
	// Task is SLURM_PROCID, Step the step: "0", "batch". Task is -1 outside Slurm.
	Task     int       `json:"task"`
	Step     string    `json:"step,omitempty"`
	PID      int       `json:"pid"`     // of the command
	Holder   int       `json:"holder"`  // of rsswarden run
	Watcher  int       `json:"watcher"` // the one that follows, or leads
	Leads    bool      `json:"leads,omitempty"`
	Command  string    `json:"command"` // its first words
	Since    time.Time `json:"since"`   // when the command was started
	Memory             // summed over the rank's tree
	Procs    int       `json:"procs"`
	Workers  int       `json:"workers"`  // workers of loaders and pools that live
	Recycled int       `json:"recycled"` // workers replaced so far, by the hook or by a signal
	// Hook says whether a loader of it talks to us, and where not, why.
	Hook string `json:"hook"` // "recycle", "trim", "off"
	Why  string `json:"why,omitempty"`
}

// Memory is what a process holds, or all of a rank.
type Memory struct {
	RSS   rss.Bytes `json:"rss_bytes"`
	Anon  rss.Bytes `json:"anon_bytes"`
	File  rss.Bytes `json:"file_bytes"`
	Shmem rss.Bytes `json:"shmem_bytes"`
	// Growth is the change of RSS in bytes a second over the last seconds, nil where it was
	// not seen for so long.
	Growth *float64 `json:"growth_bytes_per_s"`
}

// Add adds what a process holds to a sum. A growth that is not known counts 0.
func (m *Memory) Add(o Memory) {
	m.RSS, m.Anon, m.File, m.Shmem = m.RSS+o.RSS, m.Anon+o.Anon, m.File+o.File, m.Shmem+o.Shmem
	if o.Growth != nil {
		sum := *o.Growth
		if m.Growth != nil {
			sum += *m.Growth
		}
		m.Growth = &sum
	}
}

// WorkerCounts counts what was done to a loader worker and to those it has replaced.
type WorkerCounts struct {
	Trims    int `json:"trims,omitempty"`
	Recycled int `json:"recycled,omitempty"`
}

// Proc is one process that a limit of the node counts.
type Proc struct {
	PID    int      `json:"pid"`
	Start  uint64   `json:"start"` // in clock ticks since boot, see proc_pid_stat(5)
	Parent int      `json:"parent"`
	Role   rss.Role `json:"role"`
	// Pool names the class of the pool that a worker belongs to, such as
	// "multiprocessing.Pool"; empty for any other process.
	Pool string `json:"pool,omitempty"`
	// Task is the rank that it belongs to, -1 for none; Step its step.
	Task  int    `json:"task"`
	Step  string `json:"step,omitempty"`
	Comm  string `json:"comm"`
	State string `json:"state"` // as in proc_pid_stat(5): R, S, D, T, Z
	Memory
	WorkerCounts
	// PSS is known only where a limit is compared in it, and is as old as Age.
	PSS *rss.Bytes `json:"pss_bytes,omitempty"`
	Age float64    `json:"pss_age_s,omitempty"`
	// Maps and FDs are counts of memory mappings and open files where they were
	// counted, else 0.
	Maps    uint64 `json:"maps,omitempty"`
	FDs     uint64 `json:"fds,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// CanRecycle says that "recycle" may name it.
	CanRecycle bool `json:"can_recycle,omitempty"`
	CanTrim    bool `json:"can_trim,omitempty"`
}

// Action is a decision that is being carried out, of the ladder or on request.
type Action struct {
	Action event.Action `json:"action"`
	Rule   string       `json:"rule"` // "asked for" where no rule did
	PIDs   []int        `json:"pids,omitempty"`
	Since  time.Time    `json:"since"`
}

// Outcome is the outcome event of a decision, with what was decided. Of the decision
// it has what an outcome lacks to be told by itself.
type Outcome struct {
	event.Outcome
	Action event.Action `json:"action,omitempty"`
	Arg    string       `json:"arg,omitempty"` // of signal=, exec=, requeue=
	Rule   string       `json:"rule,omitempty"`
	By     int          `json:"by,omitempty"` // PID of who asked for it
}

// Name is what was decided, for people: "recycle", "signal=USR1".
func (o *Outcome) Name() string {
	switch {
	case o.Action == "":
		return "decision " + strconv.FormatUint(o.Decision, 10) // of an older leader
	case o.Arg != "":
		return string(o.Action) + "=" + o.Arg
	}
	return string(o.Action)
}

// Command asks for something to be done now. It is the body of POST /v1/recycle,
// /v1/trim, /v1/gc and /v1/checkpoint; what is to be done is the path's. An empty body
// means all that can.
type Command struct {
	Do event.Action `json:"-"`
	// PIDs and Ranks narrow it down to processes, and to ranks by SLURM_PROCID.
	PIDs  []int `json:"pids,omitempty"`
	Ranks []int `json:"ranks,omitempty"`
	// Signal is what a checkpoint sends, "USR1"; empty for what the run's own
	// options say.
	Signal string `json:"signal,omitempty"`
	// By is who asked, for the event: the server fills it in.
	By int `json:"-"` // PID, 0 where unknown
}

// Result is a line of the answer to a command: one for each process that was asked, as
// it comes, and at last one with Done.
type Result struct {
	PID    int          `json:"pid,omitempty"`
	Task   int          `json:"task"` // its rank, -1 for none
	OK     bool         `json:"ok"`
	Reason event.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"`
	// Freed is what the process gave back, in RSS.
	Freed    rss.Bytes `json:"freed_bytes,omitempty"`
	Paused   float64   `json:"paused_s,omitempty"` // how long a trainer paused
	Duration float64   `json:"duration_s,omitempty"`
	// Done is the last line: OK then says that every process did it.
	Done bool `json:"done,omitempty"`
}

// Source is who knows and does: the watcher. Its methods are called by the
// server's goroutines, several at a time, and give up when ctx does.
type Source interface {
	Status(ctx context.Context) (*Status, error)
	// Do begins a command. The channel is closed behind the last result; what has
	// not begun when ctx ends is not begun. The error is an [*Refused] where it
	// cannot be done.
	Do(ctx context.Context, c Command) (<-chan Result, error)
	// Events yields the lines of the event stream from now on, each one JSON
	// object without a newline. It loses lines for a slow client, and is closed at
	// the run's end.
	Events(ctx context.Context) (<-chan []byte, error)
}

// ErrEnded is the answer of a watcher that ends. It becomes HTTP status 410.
var ErrEnded = errors.New("the run has ended")

// Refused says why a command is not carried out. It becomes HTTP status 409.
type Refused struct {
	Reason event.Reason
	Detail string
	Hint   string // what to do, empty for nothing
}

func (r *Refused) Error() string { return r.Detail }
