// Package rss holds the vocabulary of memory and its arithmetic: what a
// process, a tree and a cgroup use, in bytes.
//
// Four ways of adding memory up are in use, and they answer different
// questions. The sum of RSS counts a page once for every process that maps it;
// PSS divides a shared page among the processes that map it; NoShared (Slurm's
// word) leaves shared pages out altogether; a cgroup's charge counts each page
// once, page cache and tmpfs included, for the group that touched it first.
// Every number here says which it is.
//
// The unit is the byte, everywhere: kilobytes and pages become bytes in the
// parser that reads them. The package depends on the standard library only.
package rss

import (
	"fmt"
	"math"
	"time"
)

// ProcID names one process for good: a PID alone may be given to another
// process as soon as the first has been waited for.
type ProcID struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot, field 22 of
	// /proc/PID/stat (proc(5)).
	Start uint64 `json:"start"`
}

// String gives "PID@START".
func (id ProcID) String() string { return fmt.Sprintf("%d@%d", id.PID, id.Start) }

// Role is what a process is in a training job.
type Role string

// The roles of DESIGN's vocabulary.
const (
	RoleAgent      Role = "agent"       // torchrun and the like: starts trainers
	RoleTrainer    Role = "trainer"     // owns a loader, or has LOCAL_RANK and is no worker
	RoleWorker     Role = "worker"      // loads batches for a trainer
	RolePoolWorker Role = "pool worker" // does the tasks of a multiprocessing.Pool, a ProcessPoolExecutor or the like
	RoleForkHelper Role = "fork helper" // forks a loader's workers in place of their trainer
	RolePinThread  Role = "pin thread"  // a thread of the trainer; listed for completeness
	RoleShmManager Role = "shm manager" // torch_shm_manager
	RoleOther      Role = "other"       // none of these
)

// Roles lists every role.
var Roles = []Role{RoleAgent, RoleTrainer, RoleWorker, RolePoolWorker, RoleForkHelper, RolePinThread, RoleShmManager, RoleOther}

// IsWorker says that it works for another process, a DataLoader's or a pool's.
func (r Role) IsWorker() bool { return r == RoleWorker || r == RolePoolWorker }

// Proc is one process as it was read at one moment. Sizes are in bytes.
type Proc struct {
	ID     ProcID
	Parent int    // PPID as the kernel has it now: an orphan's is its adopter
	Comm   string // field 2 of /proc/PID/stat, at most 15 bytes, any byte
	State  byte   // field 3 of /proc/PID/stat: R, S, D, Z, T, t, X, I
	Reaped bool   // it has waited for a child that ended, by field 11 of /proc/PID/stat
	Role   Role

	// RSS and its parts, VmRSS, RssAnon, RssFile and RssShmem of
	// /proc/PID/status. RSS is their sum.
	RSS, Anon, File, Shmem Bytes
	// Peak is VmHWM, the highest RSS the process ever had; 0 where that is not known.
	Peak Bytes
	// FileMost is what File would be were all read that is mapped of files, less most of
	// the code; 0 where that is not known.
	FileMost Bytes
	// Virtual is VmSize of /proc/PID/status.
	Virtual Bytes
	// Locked is VmLck of /proc/PID/status, mm->locked_vm: what mlock(2) and
	// MAP_LOCKED hold in memory. They compare it with RLIMIT_MEMLOCK.
	Locked Bytes
	// Pinned is VmPin, mm->pinned_vm: what drivers hold for their devices. RDMA
	// (ib_umem_get) compares it with RLIMIT_MEMLOCK, without Locked. io_uring's
	// registered buffers are in it too, but are compared user by user; what bpf
	// and perf hold is accounted per user and mostly not in it.
	Pinned Bytes
	// Threads is the number of threads, Threads of /proc/PID/status.
	Threads int

	// PSS is the proportional share of /proc/PID/smaps_rollup, exact at PSSAt
	// and never re-read since; nil where it was not read. See [Proc.PSSRange].
	PSS *PSS
	// Private is the least that the anonymous memory of the process has grown
	// since PSS was read, or since the process was first seen where it was
	// not: new anonymous pages are unshared and count in full. Set where
	// PSS is read at all.
	Private Bytes
	// Orphan says that a process of the tree has lost its parent and belongs
	// to it because it was seen as a descendant before, or because a subreaper above
	// the tree has it.
	Orphan bool
}

// PSS is one reading of /proc/PID/smaps_rollup, or of smaps added up.
type PSS struct {
	PSS  Bytes         // Pss
	RSS  Bytes         // Rss of the same reading
	At   time.Duration // when, on the clock of Sample.Mono
	Cost time.Duration // processor time of the reading
	// Held is the processor time for which mmap_lock was held at a stretch, at
	// most: all of Cost for smaps_rollup.
	Held time.Duration

	// Anon is what of PSS is anonymous, Pss_Anon, File what is pages of files, Pss_File,
	// and Mapped what of RSS is no anonymous page, shared memory included. Split is
	// false, and they are 0, where the kernel does not say: before Linux 5.3, except for
	// readings in pieces.
	Anon, File, Mapped Bytes
	Split              bool

	// Loose is what other processes have given up since: a page that they
	// shared with this one is its own now. Joined is what others have mapped
	// since of files and shared memory: it may be shared with this one now. Born is
	// all that new processes have, which may have forked.
	Loose, Joined, Born Bytes
}

// PSSRange returns the least and greatest PSS the process can have by now, as
// far as its own RSS tells: [last − fall of RSS or + what is private since,
// last + growth of RSS since], or [what is private, RSS] where none was read.
// What others do moves it too: see [PSSSum].
func (p *Proc) PSSRange() (low, high Bytes) {
	if p.PSS == nil {
		return min(p.Private, p.RSS), p.RSS
	}
	grown := p.RSS.Sub(p.PSS.RSS)
	low = p.PSS.PSS.Sub(p.PSS.RSS.Sub(p.RSS)) + min(p.Private, grown)
	return min(low, p.RSS), min(p.PSS.PSS+grown, p.RSS)
}

// PSSFile returns the part of the process's PSS that is pages of files: as last read, less
// what it has dropped since, and at most that plus all it has mapped since, as if no other
// process mapped it. A page in page cache counts a part for each process that maps
// it, and what forks share besides, which is anonymous, has no part in that. Where the
// kernel does not split PSS, both are such a part of it as they are of RSS.
func (p *Proc) PSSFile() (low, high Bytes) {
	switch {
	case p.PSS == nil:
		return 0, p.File
	case !p.PSS.Split:
		least, _ := p.PSSRange()
		part := p.File.Scale(least.Of(p.RSS))
		return part, part
	}
	mapped := p.File + p.Shmem
	low = min(p.PSS.File.Sub(p.PSS.Mapped.Sub(mapped)), p.File)
	return low, min(p.PSS.File+mapped.Sub(p.PSS.Mapped), p.File)
}

// PSSSum adds up PSS that was read at different moments, with what processes
// have given up and mapped in between. A page that one gives up and another
// keeps leaves the true sum as it is, and so does one that others map: the
// sum of readings, some from before and some from after, is then too small or
// too large, in the second case by half of what was mapped at most, and by
// (n-1)/n of what was shared, among n processes. The zero value is an empty sum.
type PSSSum struct {
	n             int
	low, high     Bytes
	loose, joined Bytes // of the oldest reading
	rise          Bytes // by how much the sum could rise for these
	fall          Bytes // what of it others may map by now
}

// Add adds one process.
func (s *PSSSum) Add(p *Proc) {
	low, high := p.PSSRange()
	s.n, s.low, s.high = s.n+1, s.low+low, s.high+high
	if p.PSS != nil {
		s.loose, s.joined = max(s.loose, p.PSS.Loose), max(s.joined, p.PSS.Joined+p.PSS.Born)
		s.rise += min(p.PSS.Loose, p.RSS.Sub(high))
		// A process cannot map anonymous memory that another one already had.
		shared := low
		if p.PSS.Split {
			shared = min(low, p.PSS.PSS.Sub(p.PSS.Anon))
		}
		s.fall += min(min(p.PSS.Joined, shared)+p.PSS.Born, low)
	}
}

// Range returns the least and greatest that the sum can be by now.
func (s *PSSSum) Range() (low, high Bytes) {
	n := Bytes(max(s.n, 2)) // one that is not among them may map it too
	return s.low.Sub(min(s.joined/2, s.fall/n*(n-1))), s.high + min(s.loose, s.rise)
}

// NoShared is what Slurm counts under JobAcctGatherParams=NoShared: RSS less
// the file-mapped and shared-memory part (statm's rss minus share).
func (p *Proc) NoShared() Bytes { return p.RSS.Sub(p.File + p.Shmem) }

// Gaps counts processes that a sample could not read, by reason. A vanished
// process is normal; the other two mean that sums are too small.
type Gaps struct {
	Vanished  int `json:"vanished"`  // ended while they were read
	Denied    int `json:"denied"`    // may not be read by us
	Malformed int `json:"malformed"` // what was read made no sense
}

// Add returns the sum of two counts.
func (g Gaps) Add(h Gaps) Gaps {
	return Gaps{g.Vanished + h.Vanished, g.Denied + h.Denied, g.Malformed + h.Malformed}
}

// Sample is everything read at one moment. It is never changed after it was
// made.
type Sample struct {
	Seq  uint64
	At   time.Time     // wall clock, for people
	Mono time.Duration // since the watcher started, for arithmetic
	Took time.Duration // how long the reading took

	// Procs is the tree: the command and all its descendants, orphans
	// included, by PID. The first is the command while it lives.
	Procs []Proc
	// Extra is what a limit counts beside the tree: ourselves, the batch
	// shell and other processes of the Slurm step.
	Extra []Proc
	Gaps  Gaps
}

// Find returns the process with that PID in the tree, or nil.
func (s *Sample) Find(pid int) *Proc {
	for i := range s.Procs {
		if s.Procs[i].ID.PID == pid {
			return &s.Procs[i]
		}
	}
	return nil
}

// Parts is what the memory of a process is made of, one reading of
// /proc/PID/smaps_rollup (Documentation/filesystems/proc.rst), in bytes. A page
// is shared while any other process maps it too; Clean and Dirty
// tell whether it would have to be written before it can be dropped, and an
// anonymous page is dirty as soon as it was written.
//
// How two readings differ tells what grows: PrivateDirty with Anon is a leak or
// a cache of the process; PrivateDirty up and SharedDirty down with Anon flat is
// the copying of what fork shares (Python's reference counts); clean pages are
// files being mapped.
type Parts struct {
	RSS, PSS, SharedDirty, PrivateDirty Bytes
	// Anonymous is what of RSS belongs to no file, copies of file pages included.
	Anonymous Bytes
	// PSSAnon and PSSFile are parts of PSS. Since Linux 5.3: Split is false, and they are 0,
	// before.
	PSSAnon, PSSFile Bytes
	Split            bool

	At   time.Duration // when, on the clock of Sample.Mono
	Cost time.Duration // processor time of the reading, mmap_lock held for nearly all of it
}

// MappedFile is all mappings of one file in one way.
type MappedFile struct {
	Path   string // as the process's mount namespace names it
	Kind   string // what it is, as its name tells
	Shared bool   // MAP_SHARED
	RSS    Bytes
}

// The kinds of [MappedFile]. FileShm is in memory and no file of a disk: trimming gives nothing
// back of it.
const (
	FileArrow   = "arrow"   // *.arrow, *.feather, *.ipc, *.parquet: pyarrow maps them private and read-only
	FileLibrary = "library" // *.so, *.so.N, and all that is mapped executable
	FileShm     = "shm"     // /dev/shm, memfd, System V, MAP_SHARED without a file
	FileDevice  = "device"  // /dev, /dev/shm aside
	FileOther   = "other"
)

// MappedFiles is what a process has mapped of files.
type MappedFiles struct {
	// Largest are the 8 files with the largest RSS, libraries left out. Mapped
	// both shared and private, a file is two.
	Largest []MappedFile
	Sums    []MappedFile // all of them, libraries too, by kind and Shared, without a Path
}

// Unlimited stands for RLIM_INFINITY, all ones.
const Unlimited = math.MaxUint64

// ResourceLimits are soft limits of one process (getrlimit(2)); [Unlimited]
// where there is none. prlimit(2) changes them from outside at any time.
type ResourceLimits struct {
	// AddressSpace is RLIMIT_AS in bytes: mmap and brk fail with ENOMEM where
	// [Proc].Virtual would pass it.
	AddressSpace Bytes
	// LockedMemory is RLIMIT_MEMLOCK in bytes: see [Proc].Locked and Pinned,
	// each of which is compared with it alone. A process with CAP_IPC_LOCK is
	// exempt.
	LockedMemory Bytes
	// Tasks is RLIMIT_NPROC: how many tasks, threads that is, the user may have
	// when this process makes one more.
	Tasks uint64
	// Descriptors is RLIMIT_NOFILE: how many descriptors it may have open.
	Descriptors uint64
	// Status has the sizes in /proc/PID/status by their names there, "VmPTE", for limits on
	// what no [Proc] has. They are as old as the rest: Age, in seconds.
	Status map[string]Bytes
	Age    float64
}

// meterKept is how many durations a [Meter] looks back.
const meterKept = 8

// Meter keeps what something costs that is done over and over, so that its
// share of a core can be bounded. It is the least of the last eight durations:
// what longer ones took on top was the load of the node, and to look less often
// because of that would be to look away when it counts. The zero value has seen
// nothing.
type Meter struct {
	last [meterKept]time.Duration
	n    int
}

// Add takes one duration.
func (m *Meter) Add(d time.Duration) {
	m.last[m.n%meterKept] = d
	m.n++
}

// Cost returns what it costs once, 0 where nothing was seen.
func (m *Meter) Cost() time.Duration {
	seen := min(m.n, meterKept)
	if seen == 0 {
		return 0
	}
	least := m.last[0]
	for _, d := range m.last[1:seen] {
		least = min(least, d)
	}
	return least
}

// Pause returns the time from one start to the next with which it takes that
// share of a core, above 0 and 1 at most.
func (m *Meter) Pause(share float64) time.Duration {
	return time.Duration(float64(m.Cost()) / share)
}
