package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

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
