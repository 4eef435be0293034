package counts

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Shared reads the limits that several processes share: committed memory, /dev/shm and the
// number of tasks. A /dev/shm may hang: call it where that holds nothing up.
type Shared struct {
	proc string
	pid  int
	path *cgroup.Path   // nil where none is
	list []cgroup.Tasks // its room is kept

	node     *proctree.Node
	strict   bool          // vm.overcommit_memory is 2
	strictAt time.Duration // when that was read

	counter *proctree.Counter
	user    proctree.TaskUser
	userOK  bool
	most    uint64        // RLIMIT_NPROC, 0 for none
	mostAt  time.Duration // when it was read
	begun   bool
	users   proctree.Count // tasks of the user
	usersAt time.Duration
	counted bool
	listed  bool
}

// NewShared reads for the cgroup and the user of a process: the command, or one of a job.
func NewShared(proc, sys string, pid int) *Shared {
	s := &Shared{proc: proc, pid: pid, node: proctree.NewNode(proc), strictAt: -rlimitHolds, counter: proctree.NewCounter(proc)}
	if p, err := cgroup.OpenTasks(proc, sys, pid); err == nil {
		s.path = p
	}
	u, err := proctree.TaskUserOf(proc, pid)
	s.user, s.userOK = u, err == nil
	return s
}

func (s *Shared) Close() {
	s.path.Close()
	s.node.Close()
	s.counter.Close()
}

const (
	// rlimitHolds is how long RLIMIT_NPROC and vm.overcommit_memory are believed.
	rlimitHolds = time.Minute
	// usersShare times what it takes to count the tasks of a user is the pause
	// before the next time, and usersRest that at least.
	usersShare = 2000
	usersRest  = 5 * time.Second
	// usersNear is the share of RLIMIT_NPROC that all tasks of the node must have
	// reached for those of the user to be counted: no user has more.
	// Below usersFar they are not any more.
	usersNear = 0.5
	usersFar  = 0.4
)

// Read returns these limits now, on a clock that starts anywhere. pids are
// those whose /dev/shm is meant. All counts all that can be counted, whatever it costs.
func (s *Shared) Read(now time.Duration, pids []int, all bool) []event.Limit {
	var out []event.Limit
	if l, ok := s.commit(now); ok {
		out = append(out, l)
	}
	if l, ok := s.shm(pids); ok {
		out = append(out, l)
	}
	return append(out, s.tasks(now, all)...)
}

// commit returns what of the node's memory is committed, where the kernel keeps count of
// that. It refuses a process without CAP_SYS_ADMIN a little earlier (__vm_enough_memory in
// mm/util.c).
func (s *Shared) commit(now time.Duration) (event.Limit, bool) {
	if now-s.strictAt >= rlimitHolds {
		mode, err := proctree.Overcommit(s.proc)
		s.strict, s.strictAt = err == nil && mode == 2, now
	}
	if !s.strict {
		return event.Limit{}, false
	}
	m, err := s.node.Read()
	if err != nil || m.CommitLimit == 0 {
		return event.Limit{}, false
	}
	return event.Limit{
		Name: event.LimitCommit, Scope: event.ScopeNode, Used: m.Committed, UsedMax: m.Committed, Limit: m.CommitLimit,
		Enforcer:   "kernel, by ENOMEM of mmap, brk and fork",
		UsedSource: "meminfo: Committed_AS", LimitSource: "meminfo: CommitLimit",
		Note: "vm.overcommit_memory is 2: what is asked for counts, used or not; everything on the node counts",
	}, true
}

// shm returns the fullest /dev/shm of these processes.
func (s *Shared) shm(pids []int) (fullest event.Limit, ok bool) {
	var seen []uint64
	for _, pid := range pids {
		space, err := shm.Usage(s.proc, pid)
		if err != nil || !space.Tmpfs || space.Size == 0 || slices.Contains(seen, space.Dev) {
			continue
		}
		seen = append(seen, space.Dev)
		if l := ofSpace(&space); !ok || l.Ratio() > fullest.Ratio() {
			fullest, ok = l, true
		}
	}
	return fullest, ok
}

// ofSpace words how full a /dev/shm is. Files without a name count until the last
// process that has them open or mapped has ended.
func ofSpace(s *shm.Space) event.Limit {
	l := event.Limit{
		Name: event.LimitSHM, Scope: event.ScopeNode, Used: s.Used, UsedMax: s.Used, Limit: s.Size,
		Enforcer:   "kernel, by SIGBUS, or ENOSPC of write",
		UsedSource: "statfs of /proc/PID/root/dev/shm", LimitSource: "size of that tmpfs",
		Note: "what is in it is charged to the cgroup of who wrote it, and in no RSS unless it is mapped",
	}
	if !s.Mount {
		l.Note = "/dev/shm is no file system of its own here, but a directory of /dev; " + l.Note
	}
	if s.Inodes > 0 && float64(s.InodesUsed) > float64(s.Inodes)*max(l.Ratio(), usersNear) {
		l.Note = fmt.Sprintf("%s of %s files are used up, which ends it sooner; %s", text.Digits(s.InodesUsed), text.Digits(s.Inodes), l.Note)
	}
	return l
}

// tasks returns the limits on tasks: of each cgroup level that has one, of the
// user, of the node.
func (s *Shared) tasks(now time.Duration, all bool) []event.Limit {
	var out []event.Limit
	add := func(scope event.Scope, used, most uint64, usedSource, limitSource, level string) {
		out = append(out, event.Limit{
			Name: event.LimitTasks, Scope: scope, Level: level, Used: rss.Bytes(used), UsedMax: rss.Bytes(used), Limit: rss.Bytes(most),
			Enforcer: "kernel, by EAGAIN of fork", UsedSource: usedSource, LimitSource: limitSource,
		})
	}
	if s.path != nil {
		// Levels that were read are returned beside an error.
		s.list, _ = s.path.Tasks(s.list[:0])
		for i := range s.list {
			t := &s.list[i]
			if t.Max > 0 {
				current, most := t.Files()
				add(event.ScopeOfCgroup(t.Level.Name), t.Current, t.Max, current, most, t.Level.Dir)
			}
		}
	}
	node, err := s.node.Tasks()
	if err == nil && node.Kernel {
		most, source := node.ThreadsMax, "kernel.threads-max"
		if node.PIDMax < most {
			most, source = node.PIDMax, "kernel.pid_max"
		}
		add(event.ScopeNode, uint64(node.Total), most, "field 4 of /proc/loadavg", source, "")
	}
	if !s.userOK || s.user.Exempt || !s.limited(now) {
		return out
	}
	share := usersNear
	if s.listed {
		share = usersFar // what comes and goes would be told as new each time
	}
	s.listed = err != nil || !node.Kernel || float64(node.Total) >= share*float64(s.most)
	if !all && !s.listed {
		return out
	}
	if pause := max(usersShare*s.users.Cost, usersRest); all || !s.counted || now-s.usersAt >= pause {
		n, err := s.counter.UserTasks(s.user.UID)
		if err != nil {
			s.users.Cost = n.Cost
			return out
		}
		s.users, s.usersAt, s.counted = n, now, true
	}
	add(event.ScopeUser, uint64(s.users.N), s.most, fmt.Sprintf("threads of user %d in /proc", s.user.UID), "soft RLIMIT_NPROC of /proc/PID/limits", "")
	if age := (now - s.usersAt).Seconds(); age >= 1 {
		out[len(out)-1].Age = age
	}
	return out
}

// limited reads RLIMIT_NPROC now and then, and says whether there is one.
func (s *Shared) limited(now time.Duration) bool {
	if !s.begun || now-s.mostAt >= rlimitHolds {
		if l, err := proctree.Limits(s.proc, s.pid); err == nil {
			s.most = l.Tasks
		}
		s.begun, s.mostAt = true, now
	}
	return s.most > 0 && s.most != rss.Unlimited
}

// sharedReader has [Shared] read on the side. It wakes the loop only where a limit may be
// reached soon.
type sharedReader struct {
	*probe.Reader[sharedQuestion, sharedAnswer]

	pids   []int
	loads  bool // there is a trainer, or may be one
	begun  bool // it was asked once
	asked  time.Duration
	limits []event.Limit // as read last
	at     time.Duration
	rates  map[event.LimitID]*rss.Rate
}

type sharedQuestion struct {
	now  time.Duration
	pids []int
}

type sharedAnswer struct {
	ask    sharedQuestion
	limits []event.Limit
}

const (
	sharedRest = time.Second
	// sharedSmall is the pause for a /dev/shm of less than smallSHM, as
	// containers have: a few batches fill it. It holds where a loader may fill it: where
	// there is a trainer, or half of it is used.
	sharedSmall = 100 * time.Millisecond
	smallSHM    = 1 << 30
	sharedLeast = 50 * time.Millisecond
	// sharedHangs is how long an answer may take before the last reading has its age.
	sharedHangs = 5 * time.Second
)

func newSharedReader(set *probe.Set, proc, sys string, pid int) sharedReader {
	var s *Shared
	return sharedReader{rates: map[event.LimitID]*rss.Rate{}, Reader: probe.New(set, func(ask sharedQuestion) sharedAnswer {
		fault.Point("shared")
		if s == nil {
			s = NewShared(proc, sys, pid) // which reads, too
		}
		return sharedAnswer{ask, s.Read(ask.now, ask.pids, false)}
	})}
}

// update takes in what was read, asks again where that is due, and returns the last
// reading. Without an answer for long it has its age.
func (r *sharedReader) update(now time.Duration, pids []int, loads bool) []event.Limit {
	r.taken()
	r.pids, r.loads = pids, loads
	r.ask(now)
	limits := slices.Clone(r.limits)
	if age := now - r.at; r.Busy() && now-r.asked >= sharedHangs {
		for i := range limits {
			limits[i].Age = max(limits[i].Age, age.Seconds())
		}
	}
	return limits
}

// taken takes in what was read, and says whether anything was since.
func (r *sharedReader) taken() bool {
	got, ok := r.Take()
	if !ok {
		return false
	}
	r.limits, r.at = got.limits, got.ask.now
	for i := range r.limits {
		l := &r.limits[i]
		rate := r.rates[l.ID()]
		if rate == nil {
			rate = &rss.Rate{}
			r.rates[l.ID()] = rate
		}
		rate.Add(r.at, l.Used)
	}
	return true
}

// pause is how long after one reading the next is due.
func (r *sharedReader) pause(now time.Duration) time.Duration {
	pause := sharedRest
	for i := range r.limits {
		l := &r.limits[i]
		if l.Name == event.LimitSHM && l.Limit < smallSHM && (r.loads || l.Used >= l.Limit/2) {
			pause = min(pause, sharedSmall)
		}
		next := l.Limit
		if l.Ratio() < event.NearShare {
			next = next.Scale(event.NearShare)
		}
		if rate := r.rates[l.ID()].PerSecond(now); rate > 0 {
			seconds := math.Min(float64(next.Sub(l.Used))/rate, sharedRest.Seconds()*pauseShare)
			pause = min(pause, max(time.Duration(seconds/pauseShare*float64(time.Second)), sharedLeast))
		}
	}
	return pause
}

func (r *sharedReader) ask(now time.Duration) {
	if r.Reader == nil || r.Busy() || r.pids == nil {
		return
	}
	pause := r.pause(now)
	if r.begun && now-r.asked < pause-min(Tolerance, pause/4) {
		return
	}
	r.Ask(sharedQuestion{now, r.pids}, pause < sharedRest)
	r.begun, r.asked = true, now
}

// next is how long after now the loop is to wake for a reading; false where it
// need not.
func (r *sharedReader) next(now time.Duration) (pause time.Duration, ok bool) {
	if r.Reader == nil || r.Busy() {
		return 0, false
	}
	pause = r.pause(now)
	return max(r.asked+pause-now, 0), pause < sharedRest
}

// mostSharers is of how many processes /dev/shm is read at most.
const mostSharers = 8

// Sharers are the processes whose /dev/shm is read: trainers, each of which may be in a
// container of its own, else the command, else the first of a job.
func Sharers(procs []rss.Proc, command int) []int {
	var pids []int
	for i := range procs {
		if p := &procs[i]; p.Role == rss.RoleTrainer && p.State != 'Z' && len(pids) < mostSharers {
			pids = append(pids, p.ID.PID)
		}
	}
	switch {
	case len(pids) > 0:
	case command != 0:
		pids = append(pids, command)
	case len(procs) > 0:
		pids = append(pids, procs[0].ID.PID)
	}
	return pids
}
