package render

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

const barColumns = 20

// leastWidth is how narrow text is made; a narrower terminal folds it.
const leastWidth = 60

// silentBelow is how long a command may run without a summary, where all is well.
const silentBelow = 2 * time.Second

// Silent says that a run has nothing worth a line: it was short, ended well, and nothing was
// done.
func Silent(b *analysis.Brief) bool {
	return b.Outcome == event.RunOK && b.Duration() < silentBelow && b.Helped == event.HelpedNo
}

// Summary is the end of a run in one to five lines: how it ended, its peak, what was done,
// what to ask for next, where to read more.
func Summary(b *analysis.Brief, style values.Style) []string {
	if Silent(b) {
		return nil
	}
	return summaryLines(b, style, [][2]string{{"peak", ""}, {"did", didWords(b)}, {"next", NextWords(b)}, {"more", moreWords(b)}})
}

// Short is the end in three lines of a run that the user did not ask for; nil where nothing was
// done that the job needed and memory ended nothing.
func Short(b *analysis.Brief, style values.Style) []string {
	switch b.Outcome {
	case event.RunKept, event.RunOOM, event.RunSlurmKill, event.RunStopped, event.RunRequeued, event.RunExhausted:
	case event.RunTight:
		if b.Helped != event.HelpedYes {
			return nil
		}
	case event.RunUnknown: // of a task that is watched from beside, Slurm knows more
		if b.Attached == "" || b.Helped != event.HelpedYes && b.Memory != event.MemoryTight && b.Memory != event.MemoryOver {
			return nil
		}
	case event.RunFailed, event.RunKilled:
		if b.Memory != event.MemoryTight && b.Memory != event.MemoryOver {
			return nil
		}
	default:
		return nil
	}
	what, more := [2]string{"did", deedWords(b)}, moreWords(b)
	if what[1] == "" {
		what[0] = "peak"
	}
	off := "--rsswarden=off turns it off"
	if b.Attached != "" {
		off = "RSSWARDEN=off turns it off"
	}
	if more == "" {
		more = off
	} else if len(more)+len("; ")+len(off) <= leastWidth {
		more += "; " + off
	}
	return summaryLines(b, style, [][2]string{what, {"more", more}})
}

// summaryLines are the headline and a line for each label with its words.
func summaryLines(b *analysis.Brief, style values.Style, rows [][2]string) []string {
	paint := gradePaint[b.Outcome.Grade()]
	lines := []string{style.Paint(paint, style.Plain(Glyph(b.Outcome)+" "+values.Plain(Ending(b))))}
	for _, row := range rows {
		label := fmt.Sprintf("  %-4s ", row[0])
		switch {
		case row[0] == "peak":
			lines = append(lines, label+peakWords(b, style, paint))
		case row[1] != "":
			text := style.Plain(values.Cut(values.Plain(row[1]), max(style.Columns(), leastWidth)-len(label)-len(programPrefix)))
			if row[0] == "next" {
				text = style.Paint(values.Bold, text)
			}
			lines = append(lines, label+text)
		}
	}
	return lines
}

const programPrefix = "rsswarden: "

var gradePaint = map[event.Grade]values.Paint{
	event.GradeGood: values.Green, event.GradeWarning: values.Yellow, event.GradeBad: values.Red, event.GradeOpen: "",
}

// Glyph is the sign of an outcome.
func Glyph(o event.RunOutcome) string {
	switch {
	case o == event.RunRequeued:
		return "↻"
	case o == event.RunRunning:
		return "…"
	case o.Grade() == event.GradeOpen:
		return "?"
	case o.Grade() == event.GradeGood:
		return "✔"
	case o == event.RunOver || o == event.RunTight:
		return "!"
	}
	return "✖"
}

// Headline is how a run ended, in 60 columns at most, without glyph and exit status.
func Headline(b *analysis.Brief) string {
	name := "it"
	if len(b.Command) > 0 {
		name = values.Cut(values.Plain(filepath.Base(b.Command[0])), 20)
	}
	switch b.Outcome {
	case event.RunRunning:
		return name + " is running"
	case event.RunRequeued:
		if b.Next.Size == 0 {
			return "requeued"
		}
		return "requeued with " + policy.MemArg(b.Next.Size)
	case event.RunOOM:
		switch {
		case b.Signal != nil && *b.Signal == "SIGKILL":
			return "out of memory: the kernel killed " + name
		case b.OK():
			return fmt.Sprintf("out of memory: %s killed; the command went on", values.Count(int(max(b.Kills, 1)), "process"))
		case b.Kills > 0:
			return "out of memory: the kernel killed " + values.Count(int(b.Kills), "process")
		}
		return "out of memory" + probably(b)
	case event.RunSlurmKill:
		return "out of memory: Slurm killed the job" + probably(b)
	case event.RunTimeout:
		return "Slurm time limit reached"
	case event.RunStopped:
		if b.Rule == "" {
			return "stopped by rsswarden"
		}
		return "stopped by rule " + values.Cut(values.Plain(b.Rule), 30)
	case event.RunCancelled:
		text := "cancelled"
		if b.Cancelled != "" {
			text += ": " + values.Plain(b.Cancelled)
		}
		if b.Memory != event.MemoryFine {
			text += besides(b)
		}
		return text
	case event.RunUnknown:
		if b.Attached != "" {
			return b.Attached
		}
		if b.At.IsZero() {
			return "unknown exit status"
		}
		if b.Detached {
			return "watched until " + b.At.Format(time.TimeOnly) + ", it ran on then"
		}
		return "record ends abruptly at " + b.At.Format(time.TimeOnly)
	case event.RunExhausted:
		return "ran out of " + thing(b.Lacked)
	case event.RunKilled:
		if b.Signal == nil {
			return "a process inside was killed" + besides(b)
		}
		return "killed by an external SIGKILL" + besides(b)
	case event.RunFailed:
		return "command failed" + besides(b)
	case event.RunOver:
		return "finished, went over " + b.Peak.Name.Called()
	case event.RunKept:
		return "finished, kept under the limit"
	case event.RunTight:
		return "finished, memory was tight"
	}
	return "finished, memory fine"
}

// Ending is the headline with the exit status and how long it took, as far as that fits.
func Ending(b *analysis.Brief) string {
	const room = 80 - len(programPrefix) - 2
	text := Headline(b) + headTail(b, true)
	if values.Columns(text) > room {
		text = Headline(b) + headTail(b, false)
	}
	return values.Cut(text, room)
}

func probably(b *analysis.Brief) string {
	if b.Probably {
		return ", probably"
	}
	return ""
}

// thing is what a run may have none left of.
func thing(l event.LimitName) string {
	if l == event.LimitFDs {
		return "file " + l.Thing()
	}
	return cmp.Or(l.Thing(), "something else than memory")
}

// besides says of a run that failed how its memory was: the failure may have another cause.
func besides(b *analysis.Brief) string {
	switch {
	case b.Peak == nil || b.Memory == event.MemoryUnknown:
		return ""
	case b.Memory == event.MemoryOver && b.Peak.Name == event.LimitUser:
		return ", over --limit"
	case b.Memory == event.MemoryFine:
		return ", memory fine"
	case b.Helped == event.HelpedYes:
		return "; memory kept under the limit"
	}
	return fmt.Sprintf(", memory at %s of %s", values.Percent(b.Peak.Ratio()), b.Peak.Name.Called())
}

// exitWords is how a command ended: "exit 0", "SIGKILL"; empty where that is not known.
func exitWords(code *int, signal *string) string {
	switch {
	case signal != nil:
		return *signal
	case code != nil:
		return fmt.Sprintf("exit %d", *code)
	}
	return ""
}

// headTail is the exit status and how long it took: " (exit 0, 19 s)".
func headTail(b *analysis.Brief, long bool) string {
	var parts []string
	if b.Outcome == event.RunRequeued && b.Rule != "" {
		parts = append(parts, "rule "+values.Cut(values.Plain(b.Rule), 24))
	} else if how := exitWords(b.Code, b.Signal); how != "" {
		parts = append(parts, how)
	}
	if b.Took > 0 && long {
		parts = append(parts, took(b.Duration()))
	}
	tail := ""
	if len(parts) > 0 {
		tail = " (" + strings.Join(parts, ", ") + ")"
	}
	switch {
	case b.Outcome != event.RunOver:
	case b.Peak.Name == event.LimitSlurm:
		tail += "; Slurm may kill there"
	default:
		tail += "; nothing kills there"
	}
	return tail
}

// took is a length of time to two units.
func took(d time.Duration) string {
	if d >= 10*time.Minute && d < time.Hour {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return values.Span(d)
}

// peakWords is the bar, the share and the use of the limit that came nearest.
func peakWords(b *analysis.Brief, style values.Style, paint values.Paint) string {
	l := b.Peak
	if b.LackedLimit != nil {
		l = b.LackedLimit
	}
	if l == nil || l.Limit == 0 {
		text := phrase.Roughly(b.Most) + " summed RSS; no job limit found"
		if b.Most == 0 {
			text = "not seen; no job limit found"
		}
		if n := b.NodeLimit; n != nil {
			text = strings.TrimSuffix(text, " found") + " but the node's " + phrase.Roughly(n.Limit)
		}
		return style.Plain(text)
	}
	if l.Used == 0 {
		return style.Plain(values.Plain("no use seen of " + l.Limit.Typed() + ", " + l.Name.Called()))
	}
	what := l.Name.Called()
	switch {
	case l.Name == event.LimitSlurm && l.Accounting != "":
		what += ": " + l.Accounting.Sum()
	case l.Name.Counts():
		what = thing(l.Name)
	case b.Outcome == event.RunKilled && l.Name == event.LimitCgroup && b.Kills == 0:
		what = "no OOM kill seen"
	}
	if b.Watched == event.WatchedParts {
		what += "; seen in part"
	}
	if l.UsedMax > l.Used && values.Percent(l.Ratio()) != values.Percent(l.UsedMax.Of(l.Limit)) {
		what += "; at most " + l.Name.Amount(l.UsedMax) // not all could be read
	}
	bar := ""
	if style.Columns() >= leastWidth {
		bar = style.Paint(paint, style.Bar(l.Ratio(), barColumns)) + " "
	}
	return bar + style.Paint(values.Bold, fmt.Sprintf("%5s", values.Percent(l.Ratio()))) + "  " +
		style.Plain(phrase.Use(l.Name, l.Used, l.Limit)) + style.Paint(values.Dim, style.Plain(", "+values.Plain(what)))
}

// deedWords counts what was done; empty for nothing.
func deedWords(b *analysis.Brief) string {
	s := &b.Saved
	var parts []string
	add := func(n int, one string) {
		if n > 0 {
			parts = append(parts, values.Count(n, one))
		}
	}
	add(b.Trims(), "trim")
	if s.Recycled > 0 {
		parts = append(parts, values.Count(s.Recycled, "worker")+" recycled")
	}
	if s.Revived > 0 {
		parts = append(parts, values.Count(s.Revived, "dead worker")+" replaced")
	}
	for i := range s.Actions {
		if r := s.Actions[i].Action.Row(); !r.Trims && !r.Single && !r.Ends { // the headline has the end
			add(s.Actions[i].Worked, cmp.Or(r.Thing, string(s.Actions[i].Action)))
		}
	}
	return strings.Join(parts, ", ")
}

// due counts what a dry run would have done: "; due were 3 trims and 1 stop".
func due(s *event.Saved) string {
	var parts []string
	for i := range s.Actions {
		if a := &s.Actions[i]; a.Fired > 0 && a.Action != event.ActionWarn {
			parts = append(parts, values.Count(a.Fired, a.Action.Row().Thing))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; due: " + strings.Join(parts, ", ")
}

// didWords is what was done, or why nothing could be; empty where nothing was due.
func didWords(b *analysis.Brief) string {
	s, text := &b.Saved, deedWords(b)
	if paused := s.Paused(); paused >= 0.005 {
		text += fmt.Sprintf("; paused %.2f s", paused)
		if s.Recycled > 0 {
			text += ", no batch lost"
		}
	}
	if b.Helped == event.HelpedDryRun {
		return "dry run, nothing done" + due(s)
	}
	if text != "" {
		return text
	}
	return phrase.Skipped(s)
}

// NextWords is what to type next time; empty where nothing follows from the run.
func NextWords(b *analysis.Brief) string {
	if text, _, _ := strings.Cut(cure(b), ";"); text != "" {
		return text
	}
	n := &b.Next
	line := NextLine(n)
	if line == "" {
		return ""
	}
	switch n.Kind {
	case event.NextKeep:
		line = "keep " + line
		switch {
		case n.Without > n.Size:
			line += "; without rsswarden up to " + phrase.Roughly(n.Without)
		case b.Outcome != event.RunKept && b.Peak != nil && b.Peak.Used < n.Size:
			line += " (" + phrase.Roughly(n.Size-b.Peak.Used) + " left)"
		}
	case event.NextEnough:
		switch grew := growing(n); {
		case grew != "":
			line += " or more: " + grew
		case n.Without > n.Size:
			line += " with rsswarden, up to " + phrase.Roughly(n.Without) + " without"
		default:
			line += " is enough (" + peakAndMore(n) + ")"
		}
	case event.NextGuess:
		line += " (rough guess: 1.5 × peak)"
	case event.NextRequeued:
		return ""
	}
	return line
}

// cure is what to do where there was none left of something; empty for none.
func cure(b *analysis.Brief) string {
	if b.Outcome == event.RunExhausted {
		return b.Lacked.Cure()
	}
	return ""
}

// NextLine is the line to type: "#SBATCH --mem=1850M", "--limit 350M".
func NextLine(n *event.Next) string {
	switch {
	case n.Kind == event.NextNone || n.Size == 0:
		return ""
	case n.Option == "--mem":
		return "#SBATCH --mem=" + policy.MemArg(n.Size)
	}
	return n.Option + " " + policy.MemArg(n.Size)
}

func growing(n *event.Next) string {
	if n.Growing < rss.MiB/60 {
		return ""
	}
	return "it still grew " + phrase.Rate(n.Growing) + " at the end"
}

// peakAndMore is where a size that is enough comes from.
func peakAndMore(n *event.Next) string {
	if n.Size <= policy.LeastMem {
		return "the least that is advised"
	}
	return "peak + 10 %, rounded up"
}

func withAndWithout(n *event.Next) string {
	return "enough with rsswarden; without up to " + phrase.Roughly(n.Without) + ", an estimate"
}

// NextWhy is what an advice rests on; empty for none.
func NextWhy(n *event.Next) string {
	switch n.Kind {
	case event.NextEnough:
		why := peakAndMore(n)
		if n.Without > n.Size {
			why += "; " + withAndWithout(n)
		}
		if grew := growing(n); grew != "" {
			why += "; " + grew
		}
		return why
	case event.NextKeep:
		if n.Without > n.Size {
			return withAndWithout(n)
		}
		return "it was enough"
	case event.NextGuess:
		return "rough guess: 1.5 × peak"
	case event.NextRequeued:
		return "the job starts again with it"
	}
	return ""
}

// moreWords is the command that shows more.
func moreWords(b *analysis.Brief) string {
	switch {
	case b.Outcome == event.RunRequeued && b.Job != "":
		return "squeue -j " + b.Job + "; rsswarden report " + b.Job + " shows both attempts"
	case b.Outcome == event.RunKilled && b.Job != "":
		return "sacct -j " + b.Job + " -o State,Reason,ExitCode"
	case !b.Recorded:
		return ""
	case b.Job != "":
		return "rsswarden report " + b.Job
	case b.ID != "":
		return "rsswarden report " + b.ID
	}
	return ""
}
