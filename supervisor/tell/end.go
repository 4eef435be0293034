package tell

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// flush is how long the last events, the record and the removal of the metrics may take; the
// holder waits for 2 s in all.
const flush = time.Second

// listing is how long the run may take to be listed: flush comes after it.
const listing = 500 * time.Millisecond

// Closing ends what stands for a run that goes on: its metrics, and alerts, unless another
// leader goes on with those.
func (f *Fan) Closing(others bool) {
	f.Textfile.Close()
	f.Alerts.Close(!others)
}

// End tells how the command ended, with the summary, and closes all sinks. The comment may
// take so long.
func (f *Fan) End(e *Ending, comment time.Duration) {
	f.Findings.Last(e.Findings)
	out, brief := f.Sum.End(e)
	f.Sum.noteMapped(f.events)
	f.name(&brief)
	if f.stream != nil {
		out.Ours = f.Costs(e.Now)
	}
	f.Record.list(&out, e.Took, e.Now, listing)
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	if line := leftLine(e.Left); line != "" {
		f.Warn(line)
	}
	f.delayed.end()
	f.Lines.Summary(func(style text.Style) []string { return render.Summary(&brief, style) }, &brief)
	var closing sync.WaitGroup
	closing.Go(f.Alerts.Comment.Last(&out, e.Rank, comment))
	closing.Go(func() {
		f.Record.Close(out.Outcome != event.RunOK, flush)
	})
	counted := f.Textfile.Ended(out.Outcome)
	closing.Go(func() {
		late := time.After(flush)
		for _, done := range []<-chan struct{}{f.Textfile.Removed, counted} {
			if done == nil {
				continue
			}
			select {
			case <-done:
			case <-late:
				return
			}
		}
	})
	f.CloseStream(flush)
	closing.Wait()
	f.Alerts.Last()
}

// EndFollowing tells how the command of a rank ended that follows. What memory did is the
// leader's to tell.
func (f *Fan) EndFollowing(e *Ending) {
	out := e.Exit(f.Sum.Stopped && e.Said)
	facts := analysis.RunFacts{Code: e.Code, Saved: &event.Saved{}}
	if e.Signal != 0 {
		facts.Signal = SignalName(e.Signal)
	}
	asked := f.Sum.askedBy(e)
	facts.Meet(event.RunStopped, f.Sum.Stopped && e.Said)
	facts.Meet(event.RunCancelled, asked != "")
	facts.Meet(event.RunUnknown, !e.Said)
	out.Brief = facts.Brief(e.Took)
	out.Watched, out.Cancelled = event.WatchedRank, asked
	f.Record.list(&out, e.Took, e.Now, listing)
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	f.delayed.end()
	if !e.Said || e.Code != 0 || e.Signal != 0 {
		brief := analysis.BriefOf(&out)
		f.name(&brief)
		f.Info(fmt.Sprintf("rank %d: %s", e.Rank, render.Ending(&brief)))
	}
	f.Record.Close(true, flush)
}

// leftLine says what runs on when the command has ended, empty where nothing does.
func leftLine(left []event.Left) string {
	var parts []string
	for _, l := range left {
		what := string(l.Role)
		if l.Role == rss.RoleOther {
			what = "process"
		}
		part := fmt.Sprintf("%s with %v RSS (PID %s", text.Count(l.Procs, what), l.RSS, strings.Trim(fmt.Sprint(l.PIDs), "[]"))
		if l.Procs > len(l.PIDs) {
			part += " …"
		}
		parts = append(parts, part+")")
	}
	if len(parts) == 0 {
		return ""
	}
	return "still running after the command: " + strings.Join(parts, ", ")
}

// name says which run it is of.
func (f *Fan) name(b *analysis.Brief) {
	b.Command, b.Recorded, b.ID = f.Run.Command, f.Recorder != nil, f.Run.Label()[:4]
	if f.Run.Job != nil {
		b.Job = f.Run.Job.ID
	}
}

// CloseFollowing closes the other sinks of a rank that follows.
func (f *Fan) CloseFollowing() {
	f.CloseStream(flush)
	f.Alerts.Last()
}
