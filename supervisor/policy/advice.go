package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Run is what is known of a whole run when it has ended.
type Run struct {
	// Binding is the reading of the limit that came nearest, at its highest
	// use; nil where no limit was found.
	Binding *event.Limit
	// FirstRung is the lowest rung of the ladder for Binding, 0 for none.
	FirstRung rss.Bytes
	// Ends is that of the limit by which Slurm or the kernel ends the job, which is what
	// --mem is about, and EndsRung its lowest rung; nil where none was found.
	Ends     *event.Limit
	EndsRung rss.Bytes

	OOMKills uint64 // by the kernel, in the job's cgroup, while we ran
	// NodeKills is how many processes the OOM killer ended on the node while we ran.
	NodeKills uint64
	Killed    bool // the command died by a SIGKILL that is not ours
	// JobSum is the highest reading of slurmd's limit on all steps of the job, nil where
	// there is none, and Cancelled says that slurmd most likely cancelled the job for it.
	JobSum    *event.Limit
	Cancelled bool
	Stopped   bool // our stop ended it
	Watched   bool // the watcher was there from start to end
	Heir      bool // … and where not, for another one watched before it

	// Requeued is the memory with which a requeue= rule starts the job again, 0
	// where none did, and From what it had.
	Requeued, From rss.Bytes

	Asked  bool // a signal= rule asked the trainer
	Failed bool // the command ended with another status than 0, or by a signal
	// Exhausted names what there was none left of but memory, and what to change;
	// empty where nothing ran out.
	Exhausted string

	// Elsewhere is how much memory of the tree a cgroup did not count, by its directory.
	Elsewhere map[string]rss.Bytes

	Helped  int  // outcomes of trim, recycle and the like that freed something
	Trimmed bool // a worker gave pages back to stay within its budget
	Skipped int  // crossed rungs whose action could not help
}

// Advice is what a run comes to.
type Advice struct {
	Verdict event.Verdict
	Mem     rss.Bytes // the --mem to use next, 0 where the run does not tell
	Why     string    // one sentence with the reason
}

const (
	adviceMargin = 0.10 // on top of a peak that nothing held down
	// helplessShare is how full a limit must have been for a run that ended well
	// to have needed the help that there was none of: one that got what was
	// advised stands at 91 % of it.
	helplessShare = 0.95
	LeastMem      = 64 * rss.MiB // of what is advised, whatever the peak
	adviceMore    = 1.5          // times a limit that ended the job
)

// Advise gives the verdict on a run and the --mem to use next.
//
// A peak that nothing held down is advised with 10 % on top, rounded up. A run
// that a limit ended only shows that the limit is too small; half as much again
// is a guess and called one. A run that actions carried shows that the limit is
// enough with rsswarden; what it needs without is not known.
func Advise(r Run) Advice {
	a := Advice{Verdict: verdict(r)}
	if a.Verdict == event.VerdictExhausted {
		a.Why = r.Exhausted
		return a
	}
	l, rung := r.Binding, r.FirstRung
	own := l != nil && l.Name == event.LimitUser && r.Ends != nil
	if own {
		l, rung = r.Ends, r.EndsRung
	}
	if r.Cancelled && a.Verdict == event.VerdictKilled {
		l = r.JobSum
		a.Mem = GuessMem(max(l.Used, l.Limit).Scale(adviceMore))
		a.Why = fmt.Sprintf("most likely slurmd cancelled the job (OverMemoryKill): peak %v (%s) of %v; what it needs is not known, half as much again, rounded up, is a guess",
			l.Used, l.Compared(), l.Limit)
		return a
	}
	switch {
	case l == nil:
		a.Why = "no limit on the job's own memory was found, so nothing can be said about --mem" + r.struck()
		return a
	case l.Used == 0:
		a.Why = fmt.Sprintf("nothing was seen to be used of the limit of %v, so nothing can be said about --mem", l.Limit) + r.struck()
		return a
	}
	peak := fmt.Sprintf("peak %v (%s%s) of %v", l.Used, l.Compared(), r.whose(l), l.Limit)
	least := max(l.Used, l.Limit)
	if own && r.OOMKills == 0 && !r.Killed { // it was not l that the run came to
		least = max(l.Used, LeastMem)
	}
	neat := NeatMem(max(l.Used.Scale(1+adviceMargin), LeastMem))
	switch a.Verdict {
	case event.VerdictOOM, event.VerdictStopped, event.VerdictKilled:
		if a.Verdict == event.VerdictKilled && l.Limit > 0 && (rung == 0 || l.Used < rung) {
			a.Why = peak + "; the SIGKILL did not come from lack of memory as far as we saw"
			if text := r.struck(); text != "" {
				a.Why = peak + text
			}
			return a
		}
		a.Mem = GuessMem(least.Scale(adviceMore))
		a.Why = peak + " when the job was ended; what it needs is not known, half as much again, rounded up, is a guess"
	case event.VerdictRequeued:
		a.Mem = r.Requeued
		a.Why = peak + fmt.Sprintf("; the job starts again with %v, it had %v", r.Requeued, r.From)
	case event.VerdictAsked:
		a.Mem = neat
		a.Why = peak + "; a signal asked the trainer before the limit; the peak and 10 % on top, rounded up"
		if r.Failed {
			a.Mem = GuessMem(least.Scale(adviceMore))
			a.Why = peak + " when a signal asked the trainer, which ended then or later; what it needs is not known, half as much again, rounded up, is a guess"
		}
	case event.VerdictCarried:
		if l.Name != event.LimitUser { // --limit counts neither us nor the rest of the step
			a.Mem = l.Limit
		}
		a.Why = peak + "; enough with rsswarden, whose actions kept the job inside; without it more is needed, how much is not known"
	case event.VerdictNoHelp:
		a.Mem = neat
		if !own {
			a.Mem = max(neat, l.Limit)
		}
		a.Why = peak + " and no action could help enough; the peak and 10 % on top"
	case event.VerdictUnwatched:
		a.Why = peak + " is the least it was: the watcher was not there for all of the run"
		if r.Heir {
			a.Why = peak + " is what was seen since this watcher leads; rsswarden report joins it with what the ones before have recorded"
		}
	default:
		a.Mem = neat
		a.Why = peak + "; the peak and 10 % on top, rounded up"
		if r.Failed && a.Verdict == event.VerdictFine {
			a.Why = "memory was fine, whatever ended the command: " + a.Why
		}
	}
	if j := r.JobSum; j != nil && a.Mem > 0 && a.Mem < j.Used.Scale(1+adviceMargin) {
		// The step was nearer to its own limit, by srun --mem, than the job to its.
		a.Mem = NeatMem(j.Used.Scale(1 + adviceMargin))
		a.Why += fmt.Sprintf("; all steps of the job had %v together", j.Used)
	}
	if n := r.Elsewhere[l.Level]; n > 0 && l.Name == event.LimitCgroup && a.Verdict != event.VerdictRequeued {
		a.Mem = 0
		a.Why = peak + fmt.Sprintf("; no --mem advice: %v or more of the tree was charged to another cgroup", n)
	}
	return a
}

// struck says that the OOM killer struck on the node where no cgroup that was seen
// explains a SIGKILL; else it is empty.
func (r *Run) struck() string {
	if !r.Killed || r.OOMKills > 0 || r.NodeKills == 0 {
		return ""
	}
	return fmt.Sprintf("; the kernel's OOM killer ended %s on this node meanwhile, in cgroups that were not seen: this may be one of them", text.Count(int(r.NodeKills), "process"))
}

// verdict takes the hardest thing that happened.
func verdict(r Run) event.Verdict {
	switch {
	case r.Requeued > 0:
		return event.VerdictRequeued
	case r.Stopped:
		return event.VerdictStopped
	case r.OOMKills > 0:
		return event.VerdictOOM
	case r.Killed, r.Cancelled && r.JobSum != nil:
		return event.VerdictKilled
	case r.Exhausted != "" && r.Failed:
		return event.VerdictExhausted
	case !r.Watched:
		return event.VerdictUnwatched
	case r.Asked && r.Failed:
		return event.VerdictAsked
	case r.Binding != nil && r.Binding.Limit > 0 && r.Binding.Used > r.Binding.Limit:
		return event.VerdictNoHelp
	case r.Helped > 0 || r.Trimmed:
		return event.VerdictCarried
	case r.Asked:
		return event.VerdictAsked
	case r.Skipped > 0 && (r.Failed || r.Binding == nil || r.Binding.Ratio() >= helplessShare):
		return event.VerdictNoHelp
	case r.Binding != nil && r.FirstRung > 0 && r.Binding.Used >= r.FirstRung:
		return event.VerdictTight
	}
	return event.VerdictFine
}

// whose says what counts a peak so, where --limit counts too.
func (r *Run) whose(l *event.Limit) string {
	switch {
	case r.Binding.Name != event.LimitUser:
		return ""
	case l.Name == event.LimitUser:
		return ", as --limit counts; no limit that kills was found"
	}
	who, _, _ := strings.Cut(l.Enforcer, ",")
	text := ", by which " + who + " kills"
	if l.Name == event.LimitCgroup {
		text = ", by which the kernel kills"
	}
	if l.Accounting != r.Binding.Accounting {
		text += "; --limit counts " + r.Binding.Compared()
	}
	return text
}

// NeatMem rounds up to a size people write: a multiple of a sixteenth of the
// power of two below it, and of 1 MiB at least.
func NeatMem(b rss.Bytes) rss.Bytes { return roundUp(b, 16) }

// GuessMem rounds up twice as roughly: a guess should look like one.
func GuessMem(b rss.Bytes) rss.Bytes { return roundUp(b, 8) }

func roundUp(b, parts rss.Bytes) rss.Bytes {
	step := rss.MiB
	for b/step >= 2*parts {
		step *= 2
	}
	return (b + step - 1) / step * step
}

// MemArg writes a size as --mem takes it: "3584M", "4G". What is no multiple
// of 1 MiB is rounded up.
func MemArg(b rss.Bytes) string {
	if b >= rss.GiB && b%rss.GiB == 0 {
		return strconv.FormatUint(uint64(b/rss.GiB), 10) + "G"
	}
	return strconv.FormatUint(uint64((b+rss.MiB-1)/rss.MiB), 10) + "M"
}
