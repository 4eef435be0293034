package event

// RankNews is what happened to one rank of a job, the field "what" of a rank event.
type RankNews string

// What happens to ranks.
const (
	RankJoined  RankNews = "joined"  // it is on this node and was not told of before
	RankEnded   RankNews = "ended"   // its command has ended
	RankLeads   RankNews = "leads"   // its watcher records the job on this node from now on
	RankFollows RankNews = "follows" // its watcher leaves that to the leader
)

// Rank tells of one rank of the job on one node: one task that runs under
// rsswarden. The leader's record has those of all ranks of its node.
type Rank struct {
	Head
	What RankNews `json:"what"` // what happened
	// Task is SLURM_PROCID, -1 where it is not known.
	Task int    `json:"task"`
	Step string `json:"step,omitempty"` // "0", "batch"; empty outside a step
	Node string `json:"node,omitempty"` // SLURMD_NODENAME, else uname(2)
	// PID is the command's, Holder the holder's, 0 where they are not known.
	PID    int `json:"pid,omitempty"`
	Holder int `json:"holder,omitempty"`
	// Leader is the PID of the watcher that leads, 0 where none does.
	Leader int `json:"leader,omitempty"`
	// Code and Signal are how the command ended, of RankEnded: both nil where
	// nobody told, and with all other news.
	Code   *int    `json:"code,omitempty"`
	Signal *string `json:"signal,omitempty"` // "SIGKILL"
}

// Failed says that the command of the rank is known to have ended otherwise than
// with exit status 0.
func (r *Rank) Failed() bool {
	return r.What == RankEnded && (r.Signal != nil || r.Code != nil && *r.Code != 0)
}
