package tell

import (
	"fmt"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// flush is how long the last events, the record and the removal of the metrics may take; the
// holder waits for 2 s in all.
const flush = time.Second

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
	out, lines := f.Sum.End(e)
	if f.stream != nil {
		out.Ours = f.Costs(e.Now)
	}
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	for _, line := range lines {
		f.Info(line)
	}
	var closing sync.WaitGroup
	closing.Go(f.Alerts.Comment.Last(&out, e.Rank, comment))
	closing.Go(func() {
		f.Record.Close(out.Verdict != event.VerdictFine && out.Verdict != event.VerdictUnwatched, flush)
	})
	closing.Go(func() {
		select {
		case <-f.Textfile.Removed():
		case <-time.After(flush):
		}
	})
	f.CloseStream(flush)
	closing.Wait()
	f.Alerts.Last()
}

// EndFollowing tells how the command of a rank ended that follows. What memory did is the
// leader's to tell.
func (f *Fan) EndFollowing(e *Ending) {
	out, how := e.Exit(f.Sum.Stopped && e.Said)
	out.Verdict = event.VerdictLed
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	if !e.Said || e.Code != 0 || e.Signal != 0 {
		f.Info(fmt.Sprintf("rank %d: %s after %s; another rank's rsswarden on this node watched it and tells of memory", e.Rank, how, text.Span(e.Took)))
	}
	f.Record.Close(true, flush)
}

// CloseFollowing closes the other sinks of a rank that follows.
func (f *Fan) CloseFollowing() {
	f.CloseStream(flush)
	f.Alerts.Last()
}
