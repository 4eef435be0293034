package event

import "github.com/rsswarden/rsswarden/rss"

// Finding is why something grows, in one word: what a diagnosis names.
type Finding string

// The findings.
const (
	FindingMapped        Finding = "mapped file"      // a file that is mapped is read: page cache, counted in RSS for each process
	FindingCopyOnWrite   Finding = "copy-on-write"    // reference counts of Python objects make pages private that a fork shared
	FindingWorkerLeak    Finding = "leak in worker"   // a worker's own memory grows, with what it was given to do
	FindingTrainerLeak   Finding = "leak in trainer"  // the trainer's own memory grows
	FindingFragmentation Finding = "fragmentation"    // malloc_trim(3) gives much back: freed and kept by the allocator
	FindingPrefetch      Finding = "prefetch queue"   // batches that were loaded ahead wait in shared memory
	FindingPinned        Finding = "pinned memory"    // page-locked memory of the trainer grows
	FindingShmManagers   Finding = "shm managers"     // a torch_shm_manager for each worker, by the file_system strategy
	FindingSpawn         Finding = "tensors by spawn" // each tensor of the data set costs a mapping or a descriptor
	FindingCopies        Finding = "copies of data"   // workers that are not forked hold a copy of the data set each
	FindingArrow         Finding = "arrow file"       // as mapped file, by pyarrow, which maps privately: trim does not reach it
)

// Findings lists every finding in the order of the documentation.
var Findings = []Finding{
	FindingMapped, FindingCopyOnWrite, FindingWorkerLeak, FindingTrainerLeak, FindingFragmentation, FindingPrefetch,
	FindingPinned, FindingShmManagers, FindingSpawn, FindingCopies, FindingArrow,
}

// Confidence is how far a diagnosis is to be trusted.
type Confidence string

// The confidences.
const (
	Certain  Confidence = "certain"  // it was told, or measured directly
	Likely   Confidence = "likely"   // the evidence fits this and nothing else here
	Possible Confidence = "possible" // the evidence fits this and others
)

// Trust is what a confidence is worth where findings are compared.
func (c Confidence) Trust() float64 {
	return map[Confidence]float64{Certain: 1, Likely: 0.8, Possible: 0.4}[c]
}

// Diagnosis says why something grows, what speaks for it, and what to change.
type Diagnosis struct {
	Head
	Finding    Finding    `json:"finding"`    // what it is
	Confidence Confidence `json:"confidence"` // how far to trust that
	// Role and PID say in which process it was seen most; PID is 0 where it is
	// none's alone.
	Role rss.Role `json:"role,omitempty"`
	PID  int      `json:"pid,omitempty"`
	// Bytes is what it has cost so far, 0 where that is not known.
	Bytes rss.Bytes `json:"bytes,omitempty"`
	// Procs is the number of processes it was seen in, Rate how many bytes a second it grew
	// in all of them, and File the mapped file that has most of it, where these are known.
	Procs int     `json:"procs,omitempty"`
	Rate  float64 `json:"rate_bytes,omitempty"`
	File  string  `json:"file,omitempty"`
	// Evidence holds sentences with the numbers and where they were read, Advice
	// what to write instead, in the words of PyTorch and Slurm.
	Evidence []string `json:"evidence"`
	Advice   []string `json:"advice"`
}

// Rank compares two readings of one finding: what it has cost, by how certain
// that is.
func (d *Diagnosis) Rank() float64 { return float64(d.Bytes) * d.Confidence.Trust() }

// Weigh orders the findings of a run in which the tree had so much at most, held
// against a limit that adds up in that way, if any. Mappings and descriptors that
// run out end the run whatever memory is left; a page of a mapped file is nothing
// to a limit that does not count it.
func (d *Diagnosis) Weigh(tree rss.Bytes, by Accounting) float64 {
	w := d.Rank()
	switch d.Finding {
	case FindingSpawn:
		w = max(w, float64(tree)*d.Confidence.Trust())
	case FindingMapped, FindingArrow:
		if by == AccountingCgroup || by == AccountingNoShared {
			w /= 10
		}
	}
	return w
}

// Remedy is what was changed before something could go wrong, by the user's wish.
type Remedy string

// The remedies.
const (
	RemedyNoFile    Remedy = "nofile"        // a soft RLIMIT_NOFILE was raised, by --nofile
	RemedyOOMPrefer Remedy = "oom-prefer"    // a worker's oom_score_adj was raised, by --oom-prefer
	RemedyArenas    Remedy = "malloc-arenas" // MALLOC_ARENA_MAX was set, by --malloc-arenas of former versions
)

// Cure says that a remedy was applied, or why it could not be.
type Cure struct {
	Head
	Remedy Remedy `json:"remedy"`        // what was done
	PID    int    `json:"pid,omitempty"` // the process that it was done to, 0 for the command to be
	OK     bool   `json:"ok"`            // whether it was done
	// Before and After are what stood there: a limit, a score, a number.
	Before int64  `json:"before"`
	After  int64  `json:"after"`
	Reason string `json:"reason,omitempty"` // for people, where it is not OK or less than asked for
}
