package analysis

import (
	"fmt"
	"time"

	values "github.com/rsswarden/rsswarden/supervisor/text"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Version is the value of "v" in the JSON of a report. Fields are only added.
const Version = 1

// Certainty says how a cause is known.
type Certainty string

const (
	Seen     Certainty = "seen"     // the record has it
	Inferred Certainty = "inferred" // it follows from what the record has
	Slurm    Certainty = "slurm"    // Slurm says so
)

// Run is one run on one node.
type Run struct {
	ID        string      `json:"id"`
	Node      string      `json:"node"`
	Step      string      `json:"step,omitempty"`
	Task      int         `json:"task"`
	Restart   int         `json:"restart,omitempty"` // how often the job had been requeued
	Command   []string    `json:"command"`
	Start     time.Time   `json:"start"`
	End       time.Time   `json:"end"`
	Cause     event.Cause `json:"cause"`
	Code      *int        `json:"code"`   // nil where it died by a signal or is unknown
	Signal    *string     `json:"signal"` // nil where it exited or is unknown
	Samples   int         `json:"samples"`
	Decisions int         `json:"decisions"`
	// Sources are the files that were read, JournalOnly says that the full
	// record was not there.
	Sources     []string `json:"sources"`
	JournalOnly bool     `json:"journal_only,omitempty"`
	Live        bool     `json:"live,omitempty"`
	Damage      []string `json:"damage,omitempty"`
}

// Peak is the most that was used, when, and where.
type Peak struct {
	Bytes rss.Bytes `json:"bytes"`
	// At is left out where no sample shows it: it came between two of them.
	At  time.Time `json:"time,omitzero"`
	Run string    `json:"run"`
}

// Peaks is the most that was used, by each way of adding up; nil where that was
// not read.
//
// Bytes of the first three are summed over the tree: RSS counts a shared page
// once for each process, PSS divides it among them, NoShared leaves it out, and
// the sum of PSS is of readings some seconds apart. Cgroup is the unreclaimable
// memory of the innermost cgroup that has a limit.
type Peaks struct {
	RSS      *Peak `json:"rss"`
	PSS      *Peak `json:"pss"`
	NoShared *Peak `json:"noshared"`
	Cgroup   *Peak `json:"cgroup"`
}

// Limit is one limit of one run.
type Limit struct {
	Run string `json:"run"`
	event.Limit
	// Used of the embedded limit is its highest, At when that was; Last is
	// where it stood at the end.
	At   time.Time `json:"time"`
	Last rss.Bytes `json:"last_bytes"`
	// Spark are the shares of the limit that were used over the run, the
	// greatest of each of 40 stretches; negative where nothing was seen.
	Spark []float64 `json:"spark"`
	// Slowed counts the allocations that memory.high slowed down.
	Slowed  uint64 `json:"slowed_allocations,omitempty"`
	Held    []Held `json:"-"` // what each role had in its fullest sample
	limitOf `json:"-"`
}

// MarshalJSON writes a limit on a number as event.Limit does, the rest beside it.
func (l Limit) MarshalJSON() ([]byte, error) {
	rest := struct {
		Run    string     `json:"run"`
		At     time.Time  `json:"time"`
		Last   *rss.Bytes `json:"last_bytes,omitempty"`
		Count  *rss.Bytes `json:"last,omitempty"`
		Spark  []float64  `json:"spark"`
		Slowed uint64     `json:"slowed_allocations,omitempty"`
	}{Run: l.Run, At: l.At, Last: &l.Last, Spark: l.Spark, Slowed: l.Slowed}
	if l.Name.Counts() {
		rest.Last, rest.Count = nil, &l.Last
	}
	return event.Beside(l.Limit, rest)
}

// Held is what processes of one role had of a limit.
type Held struct {
	Role  rss.Role
	Count int
	Bytes rss.Bytes
}

// Role is what the processes of one role had.
type Role struct {
	Run   string    `json:"run"`
	Role  rss.Role  `json:"role"`
	Pools []string  `json:"pools,omitempty"` // of pool workers, the classes of their pools
	Count int       `json:"count"`           // at most at a time
	Peak  rss.Bytes `json:"peak_rss_bytes"`  // their sum of RSS
	At    time.Time `json:"time"`
	// Anon, File and Shmem are the parts of Peak.
	Anon  rss.Bytes `json:"anon_bytes"`
	File  rss.Bytes `json:"file_bytes"`
	Shmem rss.Bytes `json:"shmem_bytes"`
	// PerProcess is the most RSS that one of them had, 0 of a journal.
	PerProcess rss.Bytes `json:"peak_process_bytes"`
}

// Budget is what workers did by themselves to stay within their budget of mapped
// pages. Freed is the fall of their RSS.
type Budget struct {
	Times int       `json:"times"`
	Freed rss.Bytes `json:"freed_bytes"`
}

// AdviceLine is one line of advice and what it rests on.
type AdviceLine struct {
	// Line is what to write: "#SBATCH --mem=3584M", "num_workers=2".
	Line     string `json:"line"`
	Why      string `json:"why"`
	Evidence string `json:"evidence"`
	// Mem is the size of a line on --mem, else 0.
	Mem rss.Bytes `json:"mem_bytes,omitempty"`
}

// MultiNode is what a report has of a job that is more than one run of one rank:
// several ranks, nodes or attempts. In JSON its fields are beside the others of
// [Result], and none is there for one run of one rank.
type MultiNode struct {
	// Binding is the limit that decided how the job ended, else the one that came
	// nearest in the last attempt; nil where no limit on memory was read.
	Binding *Binding `json:"binding,omitempty"`
	// Nodes are by attempt, the last first, then by how near they came to a limit.
	Nodes []Node `json:"nodes,omitempty"`
	// Missing are nodes that Slurm gave to the job of which there is no record,
	// Unrecorded how many there are.
	Missing    []string `json:"missing_nodes,omitempty"`
	Unrecorded int      `json:"unrecorded_nodes,omitempty"`
	// Ranks are by attempt, the last first, then by node, step and task.
	Ranks []Rank       `json:"ranks,omitempty"`
	Leads []LeadChange `json:"lead_changes,omitempty"`
	// Attempts are the times the job ran, by time; empty where it was never requeued.
	Attempts []Attempt `json:"lives,omitempty"`
}

// Nearest is the limit on memory that came nearest, at its highest share.
type Nearest struct {
	Run      string          `json:"run"`
	Limit    event.LimitName `json:"limit"`
	Scope    event.Scope     `json:"scope,omitempty"`
	Used     rss.Bytes       `json:"peak_bytes"`
	Size     rss.Bytes       `json:"limit_bytes"`
	Share    float64         `json:"share"`
	Headroom rss.Bytes       `json:"headroom_bytes"`
	// At is left out where no sample shows it: it came between two of them.
	At time.Time `json:"time,omitzero"`
	// Step and Task are the rank whose processes had most by RSS at that moment,
	// and RankRSS how much; RankRSS is 0 and Task -1 where the record does not tell,
	// as of a journal.
	Step    string    `json:"rank_step,omitempty"`
	Task    int       `json:"rank_task"`
	RankRSS rss.Bytes `json:"rank_rss_bytes,omitempty"`
}

// Binding is the limit that a job came to.
type Binding struct {
	Node string `json:"node"`
	Nearest
	// Decided says that it ended the job, as far as the verdict says.
	Decided bool `json:"decided,omitempty"`
}

// Node is one node in one attempt of the job.
type Node struct {
	Node    string   `json:"node"`
	Restart int      `json:"restart,omitempty"`
	Runs    []string `json:"runs"` // ids, by time
	// Nearest is nil where no limit on memory was read.
	Nearest   *Nearest          `json:"nearest"`
	Ranks     int               `json:"ranks"`
	Start     time.Time         `json:"start"`
	End       time.Time         `json:"end"`
	Decisions int               `json:"decisions"`
	Recycled  int               `json:"recycled"` // workers that were replaced
	Peaks     Peaks             `json:"peaks"`
	Roles     []Role            `json:"roles"`
	Actions   []event.ActionSum `json:"actions"`
	// JournalOnly says that of all its runs only journals were there.
	JournalOnly bool `json:"journal_only,omitempty"`
	Live        bool `json:"live,omitempty"`
}

// Rank is one task of one attempt.
type Rank struct {
	Node    string `json:"node"`
	Restart int    `json:"restart,omitempty"`
	Step    string `json:"step,omitempty"`
	Task    int    `json:"task"` // SLURM_PROCID, -1 where not known
	// PID is the command's, Comm its name; 0 and empty where not known.
	PID  int    `json:"pid,omitempty"`
	Comm string `json:"comm,omitempty"`
	// Start is when it was first reported, End when it ended; zero where unknown.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Code and Signal are both nil where it is not known.
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	// Peak is the most by RSS that its processes had together, nil where no record
	// has them; Workers are those of loaders and pools among them, at most at a time.
	Peak    *rss.Bytes `json:"peak_rss_bytes"`
	PeakAt  time.Time  `json:"peak_time,omitzero"`
	Workers int        `json:"workers"`
	Live    bool       `json:"live,omitempty"`
}

// Attempt is one time that the job ran.
type Attempt struct {
	Restart  int         `json:"restart"` // SLURM_RESTART_COUNT
	Start    time.Time   `json:"start"`
	End      time.Time   `json:"end"`
	Nodes    int         `json:"nodes"`
	Cause    event.Cause `json:"cause"`
	Verdict  string      `json:"verdict"`
	Binding  *Binding    `json:"binding,omitempty"`
	Duration float64     `json:"duration_s"`
}

// Several says that it is more than one run of one rank.
func (j *MultiNode) Several() bool { return len(j.Nodes) > 0 }

// LastNodes are the nodes of the last attempt.
func (j *MultiNode) LastNodes() []Node {
	n := 0
	for n < len(j.Nodes) && j.Nodes[n].Restart == j.Nodes[0].Restart {
		n++
	}
	return j.Nodes[:n]
}

// LastRanks are the ranks of the last attempt.
func (j *MultiNode) LastRanks() []Rank {
	n := 0
	for n < len(j.Ranks) && len(j.Nodes) > 0 && j.Ranks[n].Restart == j.Nodes[0].Restart {
		n++
	}
	return j.Ranks[:n]
}

func (r *Rank) Most() uint64 {
	if r.Peak == nil {
		return 0
	}
	return uint64(*r.Peak)
}

// LeadChange is one time at which another rank's watcher began to record a node.
type LeadChange struct {
	Node     string `json:"node"`
	Restart  int    `json:"restart,omitempty"`
	FromStep string `json:"from_step,omitempty"`
	From     int    `json:"from_task"`
	ToStep   string `json:"to_step,omitempty"`
	To       int    `json:"to_task"`
	// Time is when the next one took it, Gap the seconds since the last of the
	// record before, in which nothing was recorded.
	Time time.Time `json:"time"`
	Gap  float64   `json:"gap_s"`
	// Lost says that the watcher before was gone, or its holder and the watch with it;
	// else its rank had ended.
	Lost bool `json:"lost,omitempty"`
}

// Diagnosis is one finding on one role, of all runs that reported it. What it
// says is of the run in which it weighs most.
type Diagnosis struct {
	Run        string           `json:"run"`
	Finding    event.Finding    `json:"finding"`
	Confidence event.Confidence `json:"confidence"`
	Role       rss.Role         `json:"role,omitempty"`
	PID        int              `json:"pid,omitempty"`
	Bytes      rss.Bytes        `json:"bytes,omitempty"`
	Evidence   []string         `json:"evidence"`
	Advice     []string         `json:"advice"`
	// First is when it was first reported, in any run, At when this was.
	First time.Time `json:"first"`
	At    time.Time `json:"time"`
	Runs  int       `json:"runs"` // how many reported it
	// weight orders findings.
	weight float64
}

// Cure is one remedy that was applied, or that could not be, in all runs. What
// describeUse there is of the last time.
type Cure struct {
	Run    string       `json:"run"`
	Remedy event.Remedy `json:"remedy"`
	PID    int          `json:"pid,omitempty"`
	OK     bool         `json:"ok"`
	Before int64        `json:"before"`
	After  int64        `json:"after"`
	Reason string       `json:"reason,omitempty"`
	First  time.Time    `json:"first"`
	At     time.Time    `json:"time"`
	Times  int          `json:"times"`
}

// limitOf is where a limit of a [Result] was read.
type limitOf struct {
	From, To time.Time   // what its Spark is of
	line     *record.Run // see [RunScan.Line]
	Ranks    []RankKey   // who recorded it
}

// widen makes a time from start to end, both zero for none, as long as to hold another.
func widen(start, end *time.Time, from, to time.Time) {
	if start.IsZero() || from.Before(*start) {
		*start = from
	}
	if to.After(*end) {
		*end = to
	}
}

// RankKey names one rank on its node. Its holder distinguishes those without a task.
type RankKey struct {
	Step   string
	Task   int
	holder int
}

// String tells one rank from others of its node.
func (key RankKey) String() string {
	switch {
	case key.Task < 0 && key.holder > 0:
		return fmt.Sprintf("the run of process %d", key.holder)
	case key.Task < 0:
		return "a rank of unknown number"
	case key.Step == "":
		return fmt.Sprintf("task %d", key.Task)
	}
	return fmt.Sprintf("step %s, task %d", values.Plain(key.Step), key.Task)
}
