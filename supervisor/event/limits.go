package event

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// LimitName names one way to die.
type LimitName string

// The limits: what each is, [LimitName.Says] tells. Those of the second group are counts
// or of one process, not sizes of what processes hold together.
const (
	LimitCgroup   LimitName = "cgroup"
	LimitThrottle LimitName = "throttle"
	LimitSlurm    LimitName = "slurm"
	LimitUser     LimitName = "user"
	LimitNode     LimitName = "node"
	LimitCommit   LimitName = "commit"
	LimitSHM      LimitName = "shm"

	LimitMaps    LimitName = "maps"
	LimitFDs     LimitName = "fds"
	LimitTasks   LimitName = "tasks"
	LimitAS      LimitName = "as"
	LimitMemlock LimitName = "memlock"

	LimitTime LimitName = "time"
)

// unit is what a limit is measured in.
type unit int

const (
	inBytes unit = iota
	inCount
	inTime
)

// LimitRow is all that is known of a limit by its name; what is not said is none.
type LimitRow struct {
	name   LimitName
	says   string // a sentence, for manual and reference
	unit   unit
	memory bool // see [LimitName.Memory]
	thing  string
	// process reads it where its number is read with each process anyway.
	process func(*rss.Proc, *rss.ResourceLimits) (Limit, bool)
	cure    string
	Ladder  bool // rules that name no limit look at it
	OfJob   bool // it is one on the memory of this job alone
	Kills   bool // whoever enforces it kills at it
	Spares  bool // it ends no run by itself
	// Amount says that it has a place on an axis of memory. Addresses are no memory,
	// nor is what was asked for, and what is locked is part of one process's.
	Amount bool
	Use    string // what is compared with it: "used space"; empty where the accounting says so
	Acts   string // what happens at it, before Use; empty where the enforcer does what is usual
	Alert  string // the name of alerts on it, empty for memory that can be forecast: those have two
}

// Called is what people read: the option where that sets it.
func (n LimitName) Called() string {
	if n == LimitUser {
		return "--limit"
	}
	return string(n)
}

// limits are in the order of the documentation.
var limits = []LimitRow{
	{name: LimitCgroup, memory: true, Ladder: true, OfJob: true, Kills: true, Amount: true,
		says: "Of a cgroup: the kernel's OOM killer enforces it."},
	{name: LimitThrottle, memory: true, Spares: true, Amount: true,
		says:  "memory.high below memory.max: what is above it is slowed down, not killed.",
		Use:   "the charge, page cache included",
		Acts:  "slow, not dead: throttled on ",
		Alert: "RsswardenMemoryNearThrottle"},
	{name: LimitSlurm, memory: true, Ladder: true, OfJob: true, Kills: true, Amount: true,
		says: "Of the step, by slurmstepd, where the site has OverMemoryKill; of all steps of the job on this node, by slurmd, from Slurm 26.05.3 on."},
	{name: LimitUser, memory: true, Ladder: true, OfJob: true, Spares: true, Amount: true,
		says: "That of --limit, by our own rules.",
		Acts: "--limit, "},
	{name: LimitNode, memory: true, Ladder: true, Kills: true, Amount: true,
		says: "The memory and swap of the node, where no cgroup limits.",
		Use:  "the node's used memory"},
	{name: LimitCommit,
		says:  "What all processes of the node have asked for, used or not: CommitLimit, where vm.overcommit_memory is 2.",
		thing: "committed memory",
		cure:  "lower num_workers, or leave more of the node to this job; memory that is asked for counts before it is used, and a fork counts it again; only root can raise vm.overcommit_ratio or add swap",
		Use:   "the node's committed memory",
		Alert: "RsswardenCommittedMemoryNearLimit"},
	{name: LimitSHM, Amount: true,
		says:  "The size of /dev/shm; SIGBUS beyond it.",
		thing: "/dev/shm",
		cure:  "lower prefetch_factor, num_workers or the batch size; what is killed leaves its files behind there",
		Use:   "used space",
		Alert: "RsswardenShmNearLimit"},
	{name: LimitMaps, unit: inCount,
		says:  "Memory mappings of a process: vm.max_map_count.",
		thing: "memory mappings",
		cure:  `set_start_method("fork"), or one large tensor in place of many; each tensor that goes to a worker started by spawn or forkserver takes one; only root can raise vm.max_map_count`,
		Use:   "memory mappings of one process",
		Alert: "RsswardenMappingsNearLimit"},
	{name: LimitFDs, unit: inCount,
		says:  "Descriptors of a process: RLIMIT_NOFILE.",
		thing: "descriptors",
		cure:  `raise ulimit -n, or set_start_method("fork"); --nofile raises it where PyTorch needs it, up to the hard limit`,
		Use:   "descriptors of one process",
		Alert: "RsswardenDescriptorsNearLimit"},
	{name: LimitTasks, unit: inCount,
		says:  "Processes and threads: pids.max, RLIMIT_NPROC, kernel.threads-max.",
		thing: "tasks",
		cure:  "set OMP_NUM_THREADS, lower num_workers; threads count",
		Use:   "tasks",
		Alert: "RsswardenTasksNearLimit"},
	{name: LimitAS, process: addressSpace,
		says:  "Address space of a process: RLIMIT_AS.",
		thing: "address space",
		cure:  "ulimit -v unlimited where the hard limit allows it; virtual size is not memory",
		Use:   "address space of one process",
		Alert: "RsswardenAddressSpaceNearLimit"},
	{name: LimitMemlock, Spares: true, process: lockedMemory,
		says:  "Locked memory of a process: RLIMIT_MEMLOCK.",
		thing: "locked memory",
		cure:  "raise ulimit -l up to the hard limit, or pin_memory=False; or smaller communication buffers",
		Use:   "locked memory of one process",
		Alert: "RsswardenLockedMemoryNearLimit"},
	{name: LimitTime, unit: inTime, Spares: true,
		says:  "The job's end, by Slurm's time limit.",
		Alert: "RsswardenJobEndsSoon"},
}

// Limits lists every limit in the order of the documentation.
var Limits = listed(limits, func(r *LimitRow) LimitName { return r.name })

// listed is one value of each row.
func listed[R, V any](rows []R, of func(*R) V) []V {
	all := make([]V, len(rows))
	for i := range rows {
		all[i] = of(&rows[i])
	}
	return all
}

// noLimit is what is taken for granted of a limit that a newer version recorded.
var noLimit = LimitRow{Amount: true}

// row is what is known of the limit: nothing of one that this version does not have.
func (n LimitName) row() *LimitRow {
	for i := range limits {
		if limits[i].name == n {
			return &limits[i]
		}
	}
	return &noLimit
}

// Row is what is known of the limit.
func (n LimitName) Row() LimitRow { return *n.row() }

// Says is what the limit is, for people.
func (n LimitName) Says() string { return n.row().says }

// Memory says that a limit is one on the memory that processes hold together.
// The others have causes and cures of their own, and none of them is binding.
func (n LimitName) Memory() bool { return n.row().memory }

// Counts says that a limit is one on a number, not on bytes.
func (n LimitName) Counts() bool { return n.row().unit == inCount }

// Bytes says that it is one on a number of bytes.
func (r *LimitRow) Bytes() bool { return r.unit == inBytes }

// Thing is what there is none left of at such a limit: "memory mappings". It is
// empty for limits on summed memory.
func (n LimitName) Thing() string { return n.row().thing }

// Cure is what to change before such a limit is met, in the words of who documents
// it, empty as with Thing.
func (n LimitName) Cure() string { return n.row().cure }

// OfProcess is what a limit on one process stands at.
func OfProcess(name LimitName, p *rss.Proc, used, most uint64, enforcer, usedSource, limitSource string) Limit {
	return Limit{
		Name: name, Scope: ScopeProcess, Used: rss.Bytes(used), UsedMax: rss.Bytes(used), Limit: rss.Bytes(most),
		PID: p.ID.PID, Role: p.Role, Enforcer: enforcer, UsedSource: usedSource, LimitSource: limitSource,
	}
}

// LimitsOf yields the limits on one process whose numbers are read with it anyway, of those
// that it has.
func LimitsOf(p *rss.Proc, r *rss.ResourceLimits) iter.Seq[Limit] {
	return func(yield func(Limit) bool) {
		for i := range limits {
			if of := limits[i].process; of != nil {
				if l, ok := of(p, r); ok && !yield(l) {
					return
				}
			}
		}
	}
}

// addressSpace is VmSize of a process against its soft RLIMIT_AS; ok is false without one.
func addressSpace(p *rss.Proc, r *rss.ResourceLimits) (_ Limit, ok bool) {
	return OfProcess(LimitAS, p, uint64(p.Virtual), uint64(r.AddressSpace), "kernel, by ENOMEM of mmap and brk",
		"VmSize of /proc/PID/status", "soft RLIMIT_AS of /proc/PID/limits"), r.AddressSpace != rss.Unlimited && r.AddressSpace > 0
}

// lockedMemory is what a process has locked, or pinned for devices, whichever is more: the
// kernel compares each alone with the soft RLIMIT_MEMLOCK. ok is false without such a limit,
// or with nothing locked: the usual limit is 8 MiB, and says nothing of a process that locks
// no memory.
func lockedMemory(p *rss.Proc, r *rss.ResourceLimits) (_ Limit, ok bool) {
	used, source := p.Locked, "VmLck of /proc/PID/status"
	if p.Pinned > used {
		used, source = p.Pinned, "VmPin of /proc/PID/status"
	}
	return OfProcess(LimitMemlock, p, uint64(used), uint64(r.LockedMemory), "kernel, by ENOMEM of mlock and of drivers",
		source, "soft RLIMIT_MEMLOCK of /proc/PID/limits"), used > 0 && r.LockedMemory != rss.Unlimited && r.LockedMemory > 0
}

// Amount gives what a limit counts, for people: bytes as bytes, a number with its
// digits in threes.
func (n LimitName) Amount(v rss.Bytes) string {
	if n.Counts() {
		return text.Digits(uint64(v))
	}
	return v.String()
}

// asCounts has the names of fields about limits on numbers of things, behind those about bytes.
// In Go the fields are the same: one ladder serves both.
var asCounts = [][2]string{
	{"used_bytes", "used"}, {"used_max_bytes", "used_max"}, {"limit_bytes", "limit_count"}, {"threshold_bytes", "threshold"}, {"lead_bytes", "lead"},
}

// renamed gives the fields of a JSON object their other names, from the one of each pair to the
// other. In a text of JSON every quote has a backslash before it.
func renamed(b []byte, from, to int) []byte {
	for _, n := range asCounts {
		if old := []byte(`"` + n[from] + `":`); bytes.Contains(b, old) {
			b = bytes.ReplaceAll(b, old, []byte(`"`+n[to]+`":`))
		}
	}
	return b
}

type (
	plainLimit    Limit
	plainDecision Decision
)

// MarshalJSON writes a count as a count: "used", "limit_count".
func (l Limit) MarshalJSON() ([]byte, error) {
	if !l.Name.Counts() {
		return json.Marshal((*plainLimit)(&l))
	}
	if l.UsedMax == l.Used {
		l.UsedMax = 0
	}
	b, err := json.Marshal((*plainLimit)(&l))
	return renamed(b, 0, 1), err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Limit) UnmarshalJSON(b []byte) error {
	err := json.Unmarshal(renamed(b, 1, 0), (*plainLimit)(l))
	if l.Name.Counts() && l.UsedMax == 0 {
		l.UsedMax = l.Used
	}
	return err
}

// MarshalJSON writes counts as counts: "used", "limit_count", "threshold".
func (d Decision) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal((*plainDecision)(&d))
	if d.Limit.Counts() {
		b = renamed(b, 0, 1)
	}
	return b, err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Decision) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(renamed(b, 1, 0), (*plainDecision)(d))
}

// MarshalJSON writes the limit's fields beside those of the head.
func (f Found) MarshalJSON() ([]byte, error) { return Beside(f.Head, f.Limit) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Found) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &f.Head); err != nil {
		return err
	}
	return json.Unmarshal(b, &f.Limit)
}

// Beside writes the fields of two objects as those of one.
func Beside(one, other any) ([]byte, error) {
	a, err := json.Marshal(one)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(other)
	if err != nil {
		return nil, err
	}
	return append(append(a[:len(a)-1], ','), b[1:]...), nil
}
