package observe

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// SHMUsers finds out which processes hold what fills /dev/shm. The files of PyTorch's
// file_descriptor strategy have no name: ls shows nothing, and only the descriptors and
// mappings of processes tell.
type SHMUsers struct {
	*probe.Reader[shmQuestion, string]
	proc string
}

type shmQuestion struct {
	proc  string
	pid   int    // whose /dev/shm is meant
	all   []int  // the tree
	level string // the cgroup that is charged, empty for none
}

// NewSHMUsers reads below proc.
func NewSHMUsers(set *probe.Set, proc string) *SHMUsers {
	return &SHMUsers{proc: proc, Reader: probe.New(set, func(ask shmQuestion) string {
		fault.Point("holders")
		return ask.read()
	})}
}

// Told is what was found since the last call, empty for nothing.
func (u *SHMUsers) Told() string {
	text, _ := u.Take()
	return text
}

// read words what the tree holds: "in /dev/shm the job holds torch 80.0 MiB (10
// segments, 10 without a name: in processes 12 and 13); 80.0 MiB of shared memory
// are charged to …".
func (a *shmQuestion) read() string {
	space, err := shm.Usage(a.proc, a.pid)
	if err != nil {
		return ""
	}
	held, err := shm.Segments(a.proc, a.all)
	if err != nil {
		return ""
	}
	var parts []string
	sums := held.Sum(space.Dev)
	for _, kind := range slices.SortedFunc(maps.Keys(sums), func(a, b shm.Kind) int { return cmp.Compare(sums[b], sums[a]) }) {
		if total := sums[kind]; total >= rss.MiB {
			parts = append(parts, fmt.Sprintf("%s %v (%s)", kind, total, a.segments(&held, space.Dev, kind)))
		}
	}
	text := "in /dev/shm this job holds "
	if len(parts) == 0 {
		text += "nothing of size open or mapped; files that were left behind: ls -l /dev/shm"
	} else {
		text += strings.Join(parts, ", ")
	}
	if a.level != "" {
		level := cgroup.Level{Version: 2, Dir: a.level}
		if _, err := os.Stat(level.UsageFile()); err != nil {
			level.Version = 1
		}
		defer level.Close()
		if m, err := level.Memory(); err == nil {
			text += fmt.Sprintf("; %v of shared memory are charged to %s", m.Shmem, (&event.Limit{LimitSource: a.level}).Place())
		}
	}
	return text
}

// segments says of one kind how many there are, how many have no name, and which processes
// hold them.
func (a *shmQuestion) segments(held *shm.Held, dev uint64, kind shm.Kind) string {
	n, nameless := 0, 0
	by := map[int]rss.Bytes{}
	for i := range held.Segments {
		s := &held.Segments[i]
		if s.Kind != kind || s.Dev != dev {
			continue
		}
		n++
		if s.Deleted {
			nameless++
		}
		for _, pid := range s.Holders {
			by[pid] += s.Size
		}
	}
	pids := slices.SortedFunc(maps.Keys(by), func(a, b int) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	more := ""
	if len(pids) > mostUsers {
		more = fmt.Sprintf(" and %d more", len(pids)-mostUsers)
		pids = pids[:mostUsers]
	}
	names := make([]string, len(pids))
	for i, pid := range pids {
		names[i] = fmt.Sprint(pid)
	}
	line := text.Count(n, "segment")
	if nameless > 0 {
		line += fmt.Sprintf(", %d without a name", nameless)
	}
	return line + ", in processes " + strings.Join(names, ", ") + more
}

const mostUsers = 6
