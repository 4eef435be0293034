// Package record is what one run on one node leaves behind, so that its user can learn why
// it died, and how near it came: the model of a run ([Run]), the codec of its samples, and
// the journal.
//
// Two things are written. The full record has each sample of every process and every event;
// older samples are thinned, see [Thin]. Package store keeps it in LMDB. The journal is a
// small text file in the directory that the job was submitted from: decisions and few
// samples, in case the node's storage is wiped. Both have a [Meta] with the same ID.
// Whatever is read back was checked: each value of the full record carries a CRC.
package record

import (
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Version is the version of the format, in [Meta]. Older ones are read, newer ones refused.
const Version = 1

// Meta says which run a record is of. It is written first.
type Meta struct {
	V int `json:"v"`
	// ID names the run: "20261122T003015Z-12345.0.0-node7-4711", from the time,
	// the job, step and task, the node and the PID of the holder.
	ID     string    `json:"id"`
	Node   string    `json:"node"` // SLURMD_NODENAME, else uname(2)
	BootID string    `json:"boot_id"`
	Start  time.Time `json:"start"` // the wall clock where Sample.At is 0
	// Mono is CLOCK_MONOTONIC at that moment, 0 where it is not known. It puts the records
	// of one boot on one clock.
	Mono    time.Duration `json:"mono_ns,omitempty"`
	Version string        `json:"version"`
	Command []string      `json:"command"`
	Dir     string        `json:"dir"` // working directory of the command
	UID     int           `json:"uid"`
	// Holder is the holder and Process the command.
	Holder  int        `json:"holder"`
	Process rss.ProcID `json:"process"`
	Job     *Job       `json:"job,omitempty"` // nil outside Slurm
	// Attached says that rsswarden did not start what it watched.
	Attached bool `json:"attached,omitempty"`
	// MaxMapCount is vm.max_map_count, 0 where it could not be read.
	MaxMapCount uint64 `json:"max_map_count,omitempty"`
	// MaxFDs is the soft RLIMIT_NOFILE that the command was started with.
	MaxFDs uint64 `json:"max_fds,omitempty"`
	// Record is the directory of the full record, Journal a file; empty where there is none.
	Record  string `json:"record,omitempty"`
	Journal string `json:"journal,omitempty"`
}

// Job is the Slurm job, step and task that a run was in.
type Job struct {
	ID        string    `json:"id"`
	Step      string    `json:"step,omitempty"` // "0", "batch"; empty outside a step
	Task      int       `json:"task"`
	Tasks     int       `json:"tasks,omitempty"`
	NodeID    int       `json:"node_id"`
	Nodes     int       `json:"nodes,omitempty"`
	Name      string    `json:"name,omitempty"`
	Partition string    `json:"partition,omitempty"`
	Cluster   string    `json:"cluster,omitempty"`
	ArrayJob  string    `json:"array_job,omitempty"`
	ArrayTask string    `json:"array_task,omitempty"`
	Restarts  int       `json:"restarts,omitempty"`
	End       time.Time `json:"end,omitzero"` // when Slurm ends it, zero where not known
	// Dir is SLURM_SUBMIT_DIR.
	Dir string `json:"dir,omitempty"`
}

// Proc is one process in one role: who changes its role has another entry.
type Proc struct {
	ID     rss.ProcID `json:"id"`
	Parent int        `json:"parent"`
	Comm   string     `json:"comm"`
	Role   rss.Role   `json:"role"`
	// Extra says that a limit counts it, but it is not of the tree: the batch shell, say.
	Extra bool `json:"extra,omitempty"`
	Ours  bool `json:"ours,omitempty"` // rsswarden's own
}

type Reading struct {
	Limit int // index in Run.Limits
	// Used to WorkingSet and Size (its limit_bytes) are those of [event.Limit]. They are
	// rounded down to KiB; Size is exact, and so are the numbers of a limit on a count.
	Used, UsedMax, Charged, WorkingSet rss.Bytes
	Size                               rss.Bytes
	ETA                                float64 // seconds, -1 where none is made
	MayFlatten                         bool    // … before: ETA has no end of its range
	Binding                            bool
}

// Ratio is used over limit, 0.91 for 91 %.
func (r *Reading) Ratio() float64 { return r.Used.Of(r.Size) }

// Usage is what one process has at one moment, rounded down to KiB.
type Usage struct {
	Proc              int // index in Run.Procs
	Anon, File, Shmem rss.Bytes
	PSS               rss.Bytes // last reading, 0 where there is none
	Maps, FDs         int       // lines of /proc/PID/maps, entries of /proc/PID/fd; 0 where not read
}

func (u *Usage) RSS() rss.Bytes { return u.Anon + u.File + u.Shmem }

// RoleSum is what all processes of one role have together: a journal has no processes.
type RoleSum struct {
	Role  rss.Role  `json:"role"`
	Count int       `json:"count"`
	Anon  rss.Bytes `json:"anon_bytes"`
	File  rss.Bytes `json:"file_bytes"`
	Shmem rss.Bytes `json:"shmem_bytes"`
	RSS   rss.Bytes `json:"rss_bytes"`
}

type Sample struct {
	At time.Duration // since Meta.Start, by CLOCK_MONOTONIC
	// AtDecision says that a rule fired on it, a rung was left or an action has ended. It is
	// never thinned away.
	AtDecision bool
	Limits     []Reading
	Procs      []Usage   // the tree and what else is counted, see [Proc.Extra]
	Roles      []RoleSum // of the tree, where Procs is empty: from a journal
}

// Run is what was read back of one run on one node.
type Run struct {
	Meta Meta
	// Procs and Limits are what samples refer to. In Limits what changes is empty.
	Procs  []Proc
	Limits []event.Limit
	Events []Entry // all but samples, by time
	// Sources are the files that were read.
	Sources []string
	// JournalOnly says that there are few samples, none with processes.
	JournalOnly bool
	// Live says that the run was still going on.
	Live bool
	// Damage says what could not be read and why.
	Damage []string
	// Thinned says that older samples stand for more than a second each.
	Thinned bool
	// Dropped counts events that were deleted because there were too many.
	Dropped int

	owner           int                   // UID of the file that was read
	blocks          [][]byte              // encoded samples, by time
	plain           []Sample              // those of a journal; beside blocks those after the last count
	procAt, limitAt idMap                 // of numbers in blocks
	limitOf         map[event.LimitID]int // see limit
}

// Entry is one event. Value is a pointer to the type of package event that Name
// stands for: *event.Start, *event.Found, *event.Decision, *event.Outcome,
// *event.LoaderSaid, *event.Diagnosis, *event.Cure, *event.Rank, *event.Fault,
// *event.Signal, *event.Help, *event.Handover, *event.Exit.
type Entry struct {
	At    time.Duration // since Meta.Start
	Name  event.Name
	Value any
}

// Samples yields the samples by time. What it yields is overwritten by the next:
// copy what is kept.
func (r *Run) Samples() iter.Seq[*Sample] {
	return func(yield func(*Sample) bool) {
		if len(r.blocks) == 0 {
			for i := range r.plain {
				if !yield(&r.plain[i]) {
					return
				}
			}
			return
		}
		var d decoder
		var out Sample
		last := time.Duration(-1)
		for _, b := range r.blocks {
			for s := range d.samples(b) {
				if s.At < last {
					continue // from a part of a damaged record that was thinned since
				}
				last = s.At
				r.renumber(s, &out)
				if !yield(&out) {
					return
				}
			}
		}
		for i := range r.plain {
			if r.plain[i].At > last+sameSample && !yield(&r.plain[i]) {
				return
			}
		}
	}
}

// mostWork bounds the readings in another user's record, of which a few megabytes can encode
// billions: 64 processes, each second for 8 days. A sample counts like sampleWork readings.
const (
	mostWork   = 64 << 20
	sampleWork = 16
)

// SetOwner notes the UID of the file that was read, and leaves out of another user's record
// the samples beyond mostWork.
func (r *Run) SetOwner(uid int) {
	if r.owner = uid; uid == os.Geteuid() {
		return
	}
	work := 0
	var d decoder
	for i, b := range r.blocks {
		for s := range d.samples(b) {
			if work += sampleWork + len(s.Procs) + len(s.Limits); work > mostWork {
				r.Damage = append(r.Damage, fmt.Sprintf("more samples than are read of another user's record: those from %v on were left out", s.At.Round(time.Second)))
				r.blocks = r.blocks[:i]
				return
			}
		}
	}
}

// sameSample is by how much the times of one sample may differ in the record and
// in the journal, which round them.
const sameSample = 10 * time.Millisecond

// Wall returns the time of day of a moment of the run.
func (r *Run) Wall(at time.Duration) time.Time { return r.Meta.Start.Add(at) }

// End is the last moment of the run in the record.
func (r *Run) End() (end time.Duration) {
	for i := range r.Events {
		end = max(end, r.Events[i].At)
	}
	for i := range r.plain {
		end = max(end, r.plain[i].At)
	}
	if n := len(r.blocks); n > 0 {
		var d decoder
		for s := range d.samples(r.blocks[n-1]) {
			end = max(end, s.At)
		}
	}
	return end
}

// Exit returns the last event, nil where none was written: then the run was
// killed together with its watcher, or still runs.
func (r *Run) Exit() *event.Exit {
	for i := len(r.Events) - 1; i >= 0; i-- {
		if e, ok := r.Events[i].Value.(*event.Exit); ok {
			return e
		}
	}
	return nil
}

// SameOwner says that the files that both were read from belong to one user.
func (r *Run) SameOwner(as *Run) bool { return r.owner == as.owner }

// limit returns the index of a limit, whatever it was read from. One that is new is added.
func (r *Run) limit(l *event.Limit) int {
	if r.limitOf == nil {
		r.limitOf = map[event.LimitID]int{}
		for i := range r.Limits {
			r.limitOf[r.Limits[i].ID()] = i
		}
	}
	i, ok := r.limitOf[l.ID()]
	if !ok {
		i = len(r.Limits)
		r.limitOf[l.ID()] = i
		r.Limits = append(r.Limits, *l)
	}
	return i
}

// Builder makes a run in memory: from what was read, or in a test.
type Builder struct {
	run Run
	enc Encoder
}

func NewBuilder(m Meta) *Builder { return &Builder{run: Run{Meta: m}} }

func (b *Builder) Proc(p Proc) int {
	b.run.Procs = append(b.run.Procs, p)
	return len(b.run.Procs) - 1
}

func (b *Builder) Limit(l event.Limit) int {
	b.run.Limits = append(b.run.Limits, l)
	return len(b.run.Limits) - 1
}

func (b *Builder) Event(e Entry) { b.run.Events = append(b.run.Events, e) }

// Sample adds a sample, which must not be earlier than the last.
func (b *Builder) Sample(s *Sample) {
	if b.enc.Full() {
		b.run.blocks = append(b.run.blocks, b.enc.Block(0))
	}
	c := s.clone()
	for i := range c.Limits {
		if n := c.Limits[i].Limit; n < len(b.run.Limits) {
			c.Limits[i] = stored(c.Limits[i], b.run.Limits[n].Name)
		}
	}
	b.enc.Add(&c)
}

func (b *Builder) Run() *Run {
	if !b.enc.Empty() {
		b.run.blocks = append(b.run.blocks, b.enc.Block(0))
	}
	return &b.run
}

// idMap gives the index in a run of a number in its record, nil where they are the same. Each
// watcher of the run counts from a base of its own.
type idMap [][]int

const (
	// baseBits is how many numbers a watcher has.
	baseBits = 24
	baseMask = 1<<baseBits - 1
	// mostBases is more watchers than a run has.
	mostBases = 64
)

func newIDMap(index map[int]int) idMap {
	n := idMap{}
	for number, i := range index {
		base, low := number>>baseBits, number&baseMask
		if base >= mostBases || low > len(index)+mostProcs {
			continue // numbers are given one after the other: nonsense
		}
		for len(n) <= base {
			n = append(n, nil)
		}
		for len(n[base]) <= low {
			n[base] = append(n[base], -1)
		}
		n[base][low] = i
	}
	return n
}

// index returns the index of a number among so many, -1 where it has none.
func (n idMap) index(number, count int) int {
	if n == nil {
		if number < count {
			return number
		}
		return -1
	}
	base, low := number>>baseBits, number&baseMask
	if base < len(n) && low < len(n[base]) && n[base][low] < count {
		return n[base][low]
	}
	return -1
}

// renumber makes a sample of one that was decoded. What it refers to and is not
// there, in a damaged record, is left out.
func (r *Run) renumber(s, out *Sample) {
	out.At, out.AtDecision = s.At, s.AtDecision
	out.Limits, out.Procs = out.Limits[:0], out.Procs[:0]
	for i := range s.Limits {
		if at := r.limitAt.index(s.Limits[i].Limit, len(r.Limits)); at >= 0 {
			out.Limits = append(out.Limits, read(s.Limits[i], r.Limits[at].Name))
			out.Limits[len(out.Limits)-1].Limit = at
		}
	}
	for i := range s.Procs {
		if at := r.procAt.index(s.Procs[i].Proc, len(r.Procs)); at >= 0 {
			out.Procs = append(out.Procs, s.Procs[i])
			out.Procs[len(out.Procs)-1].Proc = at
		}
	}
}
