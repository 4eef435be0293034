package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Unwrapped writes what Slurm says of a job that left no record in some directories.
func Unwrapped(w io.Writer, u analysis.Unwrapped, dirs []string, style text.Style) error {
	b := blocks{style: style}
	took := ""
	if d := u.Took(); d > 0 {
		took = text.Span(d)
	}
	b.head(u.Outcome, stateWords(&u), []string{u.Slurm.ID, u.Slurm.Name, u.Slurm.NodeList, took})
	switch {
	case u.MaxRSS > 0 && u.Limit > 0:
		b.add("Memory", fmt.Sprintf("MaxRSS %s, %s; polled, so the peak may be higher", rss.UsedOf(u.MaxRSS, u.Limit), text.Percent(u.MaxRSS.Of(u.Limit))))
	case u.MaxRSS > 0:
		b.add("Memory", fmt.Sprintf("MaxRSS %v; polled, so the peak may be higher", u.MaxRSS))
	default:
		b.add("Memory", "Slurm recorded no usage")
	}
	next := [][2]string{{"exec rsswarden run -- python train.py", "same --mem; shows what grew"}}
	if u.Guess > 0 {
		next = append(next, [2]string{"#SBATCH --mem=" + policy.MemArg(u.Guess), "rough guess: 1.5 × limit"})
	}
	name := "Next"
	for _, n := range next {
		if line := fmt.Sprintf("%-42s%s", n[0], n[1]); text.Columns(line) <= style.Columns()-indent {
			b.add(name, line)
		} else {
			b.add(name, n[0], n[1])
		}
		name = ""
	}
	from := u.Slurm.Source
	if u.Step != "" {
		from += ", step " + u.Step
	}
	b.add("From", from+". No rsswarden record of this job in "+strings.Join(dirs, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}

// stateWords are the headline.
func stateWords(u *analysis.Unwrapped) string {
	words := map[event.RunOutcome]string{
		event.RunOOM: "out of memory", event.RunSlurmKill: "out of memory, Slurm killed it", event.RunTimeout: "Slurm time limit reached",
		event.RunCancelled: "cancelled", event.RunOK: "finished", event.RunRunning: "not ended", event.RunUnknown: "ended",
	}[u.Outcome]
	if u.Outcome == event.RunFailed {
		code, _, _ := strings.Cut(u.Slurm.ExitCode, ":")
		words = "command failed, exit " + code
	}
	return words + ": Slurm says " + u.Slurm.State
}
