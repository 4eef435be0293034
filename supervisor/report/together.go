package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Together is what a report has of a job that is more than one run of one rank:
// several ranks, nodes or lives. In JSON its fields stand beside the others of
// [Report], and none is there for one run of one rank.
type Together struct {
	// Clock says what the times of several runs are worth beside each other.
	Clock *Clock `json:"clock,omitempty"`
	// Binding is the limit that decided how the job ended, else the one that came
	// nearest in the last life; nil where no limit on memory was read.
	Binding *Binding `json:"binding,omitempty"`
	// Nodes are by life, the last first, then by how near they came to a limit.
	Nodes []Node `json:"nodes,omitempty"`
	// Missing are nodes that Slurm gave to the job of which there is no record,
	// Unrecorded how many there are.
	Missing    []string `json:"missing_nodes,omitempty"`
	Unrecorded int      `json:"unrecorded_nodes,omitempty"`
	// Ranks are by life, the last first, then by node, step and task.
	Ranks []Rank       `json:"ranks,omitempty"`
	Leads []LeadChange `json:"lead_changes,omitempty"`
	// Lives are the times the job ran, by time; empty where it was never requeued.
	Lives []Life `json:"lives,omitempty"`

	// told says that a text shows tables of nodes and ranks: the records tell of
	// ranks, a node is missing, or there are several lives.
	told bool
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

// Node is one node in one life of the job.
type Node struct {
	Node    string   `json:"node"`
	Restart int      `json:"restart,omitempty"`
	Runs    []string `json:"runs"` // ids, by time
	// Nearest is nil where no limit on memory was read.
	Nearest   *Nearest  `json:"nearest"`
	Ranks     int       `json:"ranks"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	Decisions int       `json:"decisions"`
	Recycled  int       `json:"recycled"` // workers that rules had replaced
	Peaks     Peaks     `json:"peaks"`
	Roles     []Role    `json:"roles"`
	Actions   []Action  `json:"actions"`
	// JournalOnly says that of all its runs only journals were there.
	JournalOnly bool `json:"journal_only,omitempty"`
	Live        bool `json:"live,omitempty"`
}

// Rank is one task of one life.
type Rank struct {
	Node    string `json:"node"`
	Restart int    `json:"restart,omitempty"`
	Step    string `json:"step,omitempty"`
	Task    int    `json:"task"` // SLURM_PROCID, -1 where not known
	// PID is the command's, Comm its name; 0 and empty where not known.
	PID  int    `json:"pid,omitempty"`
	Comm string `json:"comm,omitempty"`
	// Start is when it was first told of, End when it ended; zero where nobody
	// told.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Code and Signal are both nil where nobody told.
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	// Peak is the most by RSS that its processes had together, nil where no record
	// has them; Workers are the loader workers among them, at most at a time.
	Peak    *rss.Bytes `json:"peak_rss_bytes"`
	PeakAt  time.Time  `json:"peak_time,omitzero"`
	Workers int        `json:"workers"`
	Live    bool       `json:"live,omitempty"`
}

// Life is one time that the job ran.
type Life struct {
	Restart  int         `json:"restart"` // SLURM_RESTART_COUNT
	Start    time.Time   `json:"start"`
	End      time.Time   `json:"end"`
	Nodes    int         `json:"nodes"`
	Cause    event.Cause `json:"cause"`
	Verdict  string      `json:"verdict"`
	Binding  *Binding    `json:"binding,omitempty"`
	Duration float64     `json:"duration_s"`

	best *inquest // the end that tells why
}

// lastNodes are the nodes of the last life.
func (j *Together) lastNodes() []Node {
	if len(j.Nodes) == 0 {
		return nil
	}
	n := slices.IndexFunc(j.Nodes, func(n Node) bool { return n.Restart != j.Nodes[0].Restart })
	if n < 0 {
		return j.Nodes
	}
	return j.Nodes[:n]
}

// lastRanks are the ranks of the last life.
func (j *Together) lastRanks() []Rank {
	if len(j.Nodes) == 0 {
		return nil
	}
	n := slices.IndexFunc(j.Ranks, func(r Rank) bool { return r.Restart != j.Nodes[0].Restart })
	if n < 0 {
		return j.Ranks
	}
	return j.Ranks[:n]
}

func (r *Rank) most() uint64 {
	if r.Peak == nil {
		return 0
	}
	return uint64(*r.Peak)
}
