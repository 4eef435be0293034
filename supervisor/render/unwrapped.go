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
	t := newTextReport(nil, style)
	took := ""
	if d := u.Took(); d > 0 {
		took = text.Span(d)
	}
	t.head(u.Outcome, stateWords(&u), u.Slurm.ID, u.Slurm.Name, u.Slurm.NodeList, took)
	t.b.WriteByte('\n')
	used := "Slurm recorded no usage"
	switch {
	case u.MaxRSS > 0 && u.Limit > 0:
		used = fmt.Sprintf("MaxRSS %s, %s; polled, so the peak may be higher", rss.UsedOf(u.MaxRSS, u.Limit), text.Percent(u.MaxRSS.Of(u.Limit)))
	case u.MaxRSS > 0:
		used = fmt.Sprintf("MaxRSS %v; polled, so the peak may be higher", u.MaxRSS)
	}
	t.block("Memory").say("", used)
	next := t.block("Next")
	next.column = 42
	next.pair(text.Bold, "exec rsswarden run -- python train.py", "same --mem; shows what grew")
	if u.Guess > 0 {
		next.pair(text.Bold, "#SBATCH --mem="+policy.MemArg(u.Guess), "rough guess: 1.5 × limit")
	}
	from := u.Slurm.Source
	if u.Step != "" {
		from += ", step " + u.Step
	}
	t.block("From").say("", from+". No rsswarden record of this job in "+strings.Join(dirs, ", "))
	return t.write(w, "report")
}

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
