package limit

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// unanswered is how long after the start scontrol may still answer: a random
// pause and its own timeout.
const unanswered = 20 * time.Second

const (
	assumedEnforcer = stepdName + " perhaps, by OverMemoryKill"
	assumedNote     = "an assumption: no configuration of Slurm can be read here, so it is not known whether slurmstepd kills; " +
		"no kernel limit of this job is to be seen, and RLIMIT_RSS is what slurmstepd would compare with"
)

// sums is how slurmstepd adds the step up before it compares, empty where it
// does not. assumed says that nobody could tell and the worst is taken for
// granted; see assume. now is the time since the watcher started.
func (s *Set) sums(now time.Duration) (acc event.Accounting, assumed bool) {
	if sums, _ := s.rules.Sums(); sums != "" {
		return event.Accounting(sums), false
	}
	if s.inStep && !s.rules.Known && (s.asked || now > unanswered) {
		if acc := s.assume(); acc != "" {
			return acc, true
		}
	}
	return "", false
}

// assume is what to be afraid of in a step of which nothing is known, as in a
// container that has neither slurm.conf nor scontrol: that slurmstepd compares
// summed RSS, which is the most it can sum, with RLIMIT_RSS, which it sets
// wherever it has a limit. Two things that can be seen speak against that. A
// kernel limit of the step or job says that the kernel kills. And a directory
// of the task in the memory hierarchy is of jobacct_gather/cgroup, which does
// not sum RSS.
func (s *Set) assume() event.Accounting {
	if len(s.given) == 0 || s.given[0].Source != "RLIMIT_RSS" {
		return ""
	}
	acc := event.AccountingRSS
	for _, l := range s.levels {
		if l.scope != event.ScopeStep && l.scope != event.ScopeJob {
			continue
		}
		if lim, err := l.Limits(); err == nil && lim.Max != cgroup.Unlimited {
			return ""
		}
	}
	if s.path != nil && slices.ContainsFunc(s.path.Levels, ofTask) {
		acc = event.AccountingCgroup
	}
	return acc
}

// ofTask says that a level is the directory of a task. It need not be the leaf:
// its user may have made one below it.
func ofTask(l *cgroup.Level) bool { return strings.HasPrefix(filepath.Base(l.Dir), "task_") }
