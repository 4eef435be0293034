package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// limitFacts are the limits of the job as [limit.Set.Read] gives them.
type limitFacts struct {
	Limits   []event.Limit
	Warnings []string // of limit.Find: what could not be found out
	// Assumed says that slurmstepd's limit is an assumption.
	Assumed bool
	// Hidden says that levels of the cgroup exist that cannot be seen from here.
	Hidden bool
	Err    error
}

// Least is the limit that leaves the least room of those that end this job or that the
// user chose, nil for none.
func (f limitFacts) Least() *event.Limit {
	var least *event.Limit
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Name.Row().OfJob && l.Limit > 0 && (least == nil || l.Headroom() < least.Headroom()) {
			least = l
		}
	}
	return least
}

// Headroom is what may be used before a limit or the node's end, false if unknown.
func (f limitFacts) Headroom() (rss.Bytes, bool) {
	room, known := rss.Bytes(0), false
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Name.Row().Ladder && l.Limit > 0 && (!known || l.Headroom() < room) {
			room, known = l.Headroom(), true
		}
	}
	return room, known
}

const sayLimit = "say which size the job must keep: rsswarden run --limit SIZE"

// limitCheck says which limit ends the job here.
func limitCheck(f limitFacts) Check {
	c := Check{Name: NameLimit, Status: OK}
	l := f.Least()
	switch {
	case f.Err != nil:
		return c.as(Off, sayLimit, "no limit can be read: %v", f.Err).inPart("no limit can be read")
	case l == nil:
		return unlimited(f)
	}
	enforcer := l.Enforcer
	if l.Name == event.LimitUser {
		enforcer = "rsswarden's own rules"
	}
	c.Found = fmt.Sprintf("%s: %v, %s used; %s, on %s", l.Name, l.Limit, text.Percent(l.Ratio()), enforcer, l.Compared())
	if more := len(f.Limits) - 1; more > 0 {
		c.Found += fmt.Sprintf("; rsswarden limits shows %d more", more)
	}
	c.Source = l.LimitSource
	switch {
	case f.Assumed && l.Name == event.LimitSlurm:
		return c.as(Limited, "have SLURM_CONF name a readable slurm.conf, or scontrol be on PATH; or "+sayLimit,
			"%s; an assumption, Slurm's configuration cannot be read", c.Found).inPart("it is only assumed that slurmstepd kills")
	case len(f.Warnings) > 0:
		return c.as(Limited, "rsswarden limits shows what was looked at", "%s; not certain: %s", c.Found, f.Warnings[0]).inPart("not every limit could be read")
	}
	c.gain = fmt.Sprintf("limit %s of %v, from %s", l.Name, l.Limit, l.Place())
	return c
}

// unlimited is the check if no limit is this job's own.
func unlimited(f limitFacts) Check {
	c := Check{Name: NameLimit, Status: Limited, Do: sayLimit, part: "no limit of this job's own is known"}
	c.Found = "nothing that limits memory can be seen"
	if i := slices.IndexFunc(f.Limits, func(l event.Limit) bool { return l.Name == event.LimitNode }); i >= 0 {
		l := &f.Limits[i]
		c.Found = fmt.Sprintf("nothing limits this job's memory but the node: %v, %s used, by all users", l.Limit, text.Percent(l.Ratio()))
		c.Source = l.LimitSource
	}
	if f.Hidden {
		c.Found += "; the cgroups above cannot be seen, and one of them may have a limit"
	}
	if len(f.Warnings) > 0 {
		c.Found += "; not certain: " + strings.Join(f.Warnings, "; ")
	}
	return c
}

type treeFacts struct {
	PID   int // the process it was read from
	Procs int
	Gaps  rss.Gaps
	Err   error
}

// treeCheck says whether a watcher can read the processes of a job.
func treeCheck(f treeFacts) Check {
	c := Check{Name: NameTree, Source: "/proc/PID/stat, /proc/PID/status"}
	switch {
	case f.Err != nil:
		return c.as(Off, "have /proc mounted where the job runs (in a container, with its own PID namespace)", "the processes of this job cannot be read: %v", f.Err).
			inPart("the processes of the job cannot be read")
	case f.Gaps.Denied > 0:
		return c.as(Limited, "be the user of all processes of the job", "process %d and its descendants: %d were read, %d may not be", f.PID, f.Procs, f.Gaps.Denied).
			inPart("some processes of the job may not be read")
	}
	return c.as(OK, "", "process %d and its descendants can be read (%d now)", f.PID, f.Procs)
}

// cgroupCheck says what can be read of the memory cgroup of a process, and whether levels of
// it are hidden.
func cgroupCheck(proc, sys string, pid int) (c Check, hidden bool) {
	c = Check{Name: NameCgroup, Status: OK, Source: fmt.Sprintf("/proc/%d/cgroup", pid)}
	p, err := cgroup.Open(proc, sys, pid)
	switch {
	case errors.Is(err, cgroup.ErrNoMemory):
		return c.as(Off, "in a container, mount /sys/fs/cgroup read-only; else "+sayLimit, "no memory cgroup can be seen: what the kernel charges this job with is not known"), true
	case err != nil:
		return c.as(Off, sayLimit, "%v", err), true
	}
	leaf := p.Levels[0]
	hidden = p.Partial
	defer leaf.Close()
	c.Found = fmt.Sprintf("v%d, %s, %d levels", p.Version, p.Name, len(p.Levels))
	c.Source = leaf.Dir
	if _, err := leaf.Limits(); err != nil {
		return c.as(Off, sayLimit, "%s; %v", c.Found, err), hidden
	}
	mem, err := leaf.Memory()
	if err != nil {
		return c.as(Limited, "", "%s; page cache cannot be told from what kills: %v", c.Found, err), hidden
	}
	c.Found += fmt.Sprintf("; %v charged, %v of it cannot be reclaimed", mem.Charged, mem.Unreclaimable)
	if _, err := leaf.Events(); err != nil {
		c.Status = Limited
		c.Found += "; OOM kills are not counted: " + err.Error()
	} else if p.Version == 2 {
		c.Found += "; memory.events tells at once where a limit is met"
	}
	if hidden {
		c = c.as(Limited, "where the job has been given less than what `limit` shows, "+sayLimit, "%s; levels above cannot be seen from here, a limit there holds all the same", c.Found)
	}
	return c, hidden
}

// limits reads the limits as run finds them, with the --limit of the environment and of
// the files.
func (d *prober) limits() []Check {
	const proc, sys = "/proc", "/sys"
	cgroup, hidden := cgroupCheck(proc, sys, d.PID)
	ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
	defer cancel()
	set, warnings := limit.Find(ctx, limit.Config{
		Proc: proc, Sys: sys, PID: d.PID, Lookup: d.Lookup, Accounting: cmp.Or(d.Accounting, event.AccountingAuto), User: d.Limit, UserShare: d.LimitShare, UserSource: d.Origin("limit"),
		Slurm: slurm.Search{Lookup: d.Lookup, Scontrol: slurm.Scontrol},
	})
	defer set.Close()
	sample, err := d.Sample(set, proc, d.PID)
	tree := treeFacts{PID: d.PID, Procs: len(sample.Procs), Gaps: sample.Gaps, Err: err}
	s := slurmFacts{Rules: set.Enforcement()}
	s.Job, s.InJob = set.Job()
	l := limitFacts{Limits: set.Read(sample), Hidden: hidden, Assumed: !s.Rules.Known}
	for _, w := range append(warnings, set.Warnings()...) {
		l.Warnings = append(l.Warnings, w.String())
	}
	if s.InJob {
		s.findVersion(ctx)
	}
	for _, one := range l.Limits {
		if one.Name == event.LimitCgroup && (one.Scope == event.ScopeStep || one.Scope == event.ScopeJob) {
			s.Kernel = true
		}
	}
	s.readParent(proc, d.CommandLine)
	d.found = append(slices.Clone(l.Limits), d.Counts(d.PID, sample.Procs)...)
	d.room, d.roomKnown = l.Headroom()
	checks := append([]Check{limitCheck(l), treeCheck(tree), cgroup}, slurmChecks(s)...)
	checks = append(checks, d.plugin(func() string {
		if s.Version == "" {
			s.findVersion(ctx)
		}
		return s.Version
	})...)
	return append(checks, d.taskProlog()...)
}

// Counts are limits on numbers and their use; 0 for a limit that is missing or could not
// be read.
type Counts struct {
	MaxMaps uint64 // vm.max_map_count

	// Soft and hard RLIMIT_NOFILE of a command started here.
	Files, HardFiles uint64
	FilesKnown       bool

	// pids.current and pids.max of the cgroup with the least room; the user's tasks and
	// soft RLIMIT_NPROC, if that applies to us.
	Tasks, MaxTasks    uint64
	TasksFile          string
	UserTasks, MaxUser uint64
	UserKnown          bool

	Shm, ShmSize rss.Bytes // of /dev/shm
	ShmErr       error
}

const (
	// crowded is the share of a limit at which the default ladder warns too.
	crowded = 0.8
	// fewFiles is the soft RLIMIT_NOFILE below which tensors sent by descriptors run
	// out.
	fewFiles = 4096
)

func countChecks(n Counts) []Check {
	return []Check{n.maps(), n.files(), n.tasks(), n.shm()}
}

func (n *Counts) maps() Check {
	c := Check{Name: NameMaps, Source: "/proc/sys/vm/max_map_count"}
	if n.MaxMaps == 0 {
		return c.as(Limited, "", "how many mappings a process may have cannot be read")
	}
	return c.as(OK, "", "%d mappings a process; past them mmap fails with ENOMEM", n.MaxMaps)
}

func (n *Counts) files() Check {
	c := Check{Name: NameFDs, Status: OK, Source: "RLIMIT_NOFILE of a command started here"}
	if !n.FilesKnown {
		return c.as(Limited, "", "how many files a process may have open is not known")
	}
	const anyNumber = "any number of"
	c.Found = fmt.Sprintf("%s open files a process, at most %s", count(n.Files, anyNumber), count(n.HardFiles, anyNumber))
	if n.Files < fewFiles {
		c.Status = Limited
		c.Found += "; workers that are spawned, and tensors that come from workers (strategy file_descriptor), take one for each tensor"
		c.Do = "ask for a greater hard limit, or set torch.multiprocessing.set_sharing_strategy('file_system')"
		if n.HardFiles > n.Files {
			c.Do = "rsswarden run --nofile 65536, or before it: ulimit -n " + count(n.HardFiles, "unlimited")
		}
	}
	return c
}

func (n *Counts) tasks() Check {
	c := Check{Name: NameTasks, Status: OK, Source: "pids.max, RLIMIT_NPROC"}
	var says []string
	full := func(used, limit uint64) bool { return float64(used) >= crowded*float64(limit) }
	if n.MaxTasks > 0 {
		says = append(says, fmt.Sprintf("%d of %d in the cgroup (%s)", n.Tasks, n.MaxTasks, n.TasksFile))
		if full(n.Tasks, n.MaxTasks) {
			c.Status, c.Do = Limited, "fewer loader workers, or ask for a greater pids.max: a fork will fail with EAGAIN"
		}
	}
	if n.MaxUser > 0 {
		says = append(says, fmt.Sprintf("%d of %d of this user (ulimit -u)", n.UserTasks, n.MaxUser))
		if full(n.UserTasks, n.MaxUser) {
			c.Status, c.Do = Limited, "end what else you run on this node, or raise ulimit -u: a fork will fail with EAGAIN"
		}
	}
	if !n.UserKnown {
		c.Status = Limited
		says = append(says, "what the user may have (ulimit -u) is not known")
	}
	if c.Found = strings.Join(says, ", "); c.Found == "" {
		c.Found = "no limit on threads found but the node's"
	}
	return c
}

func (n *Counts) shm() Check {
	c := Check{Name: NameShm, Status: OK, Source: "statfs of /dev/shm"}
	switch {
	case n.ShmErr != nil:
		return c.as(Off, "have one mounted: workers send tensors through it", "/dev/shm cannot be used: %v", n.ShmErr)
	case n.ShmSize == 0:
		return c.as(OK, "", "/dev/shm has no size of its own: what is in it counts as memory")
	case n.Shm.Of(n.ShmSize) >= crowded:
		c.Status, c.Do = Limited, "see what is left in /dev/shm: past its size a worker dies by SIGBUS"
	}
	c.Found = fmt.Sprintf("%v of %v used in /dev/shm", n.Shm, n.ShmSize)
	return c
}

// count is a limit in words, of which unlimited is the greatest.
func count(n uint64, unlimited string) string {
	if n == rss.Unlimited {
		return unlimited
	}
	return strconv.FormatUint(n, 10)
}

// parseLimits reads the soft and the hard limit of a row of /proc/PID/limits
// (proc_pid_limits(5)), such as "Max open files".
func parseLimits(text, row string) (soft, hard uint64, ok bool) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, row+" ")
		if !found {
			continue
		}
		rest = strings.ReplaceAll(rest, "unlimited", strconv.FormatUint(rss.Unlimited, 10))
		_, err := fmt.Sscan(rest, &soft, &hard)
		return soft, hard, err == nil
	}
	return 0, 0, false
}

func (d *prober) numbers() []Check {
	const proc = "/proc"
	var n Counts
	n.MaxMaps, _ = proctree.MapLimit(proc)
	n.Files, n.HardFiles, n.FilesKnown = parseLimits(d.trialLimits, "Max open files")
	n.Tasks, n.MaxTasks, n.TasksFile = cgroupTasks(proc, "/sys", d.PID)
	if soft, _, ok := parseLimits(d.trialLimits, "Max processes"); ok {
		countUser(&n, proc, soft)
	}
	shm, ok := within(func() (s Counts) {
		_, s.Shm, s.ShmSize, s.ShmErr = statFS("/dev/shm")
		return s
	})
	if n.Shm, n.ShmSize, n.ShmErr = shm.Shm, shm.ShmSize, shm.ShmErr; !ok {
		n.ShmErr = fmt.Errorf("no answer from the file system within %v", patience)
	}
	return countChecks(n)
}

// countUser counts what RLIMIT_NPROC is compared with, if it applies to us.
func countUser(n *Counts, proc string, soft uint64) {
	who, err := proctree.TaskUserOf(proc, os.Getpid())
	if err != nil {
		return
	}
	if who.Exempt || soft == rss.Unlimited {
		n.UserKnown = true
		return
	}
	c := proctree.NewCounter(proc)
	defer c.Close()
	if counted, err := c.UserTasks(who.UID); err == nil {
		n.MaxUser, n.UserTasks, n.UserKnown = soft, uint64(counted.N), true
	}
}

// cgroupTasks are the tasks, the limit and its file of the level of a process's cgroup
// that leaves the least room; zeros if no level limits tasks.
func cgroupTasks(proc, sys string, pid int) (tasks, most uint64, file string) {
	p, err := cgroup.OpenTasks(proc, sys, pid)
	if err != nil {
		return 0, 0, ""
	}
	defer p.Close()
	levels, _ := p.Tasks(nil) // those that can be read
	for _, l := range levels {
		if room := l.Max - min(l.Current, l.Max); file == "" || room < most-min(tasks, most) {
			tasks, most = l.Current, l.Max
			_, file = l.Files()
		}
	}
	return tasks, most, file
}
