package tell

import (
	"errors"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// textfileEvery is the least time between two texts, but for those at a decision.
// Prometheus scrapes each 15 s to a minute.
const textfileEvery = 15 * time.Second

// Textfile keeps the metrics of a run in a file for node_exporter, by --textfile. Who
// leads does, for all ranks that are led.
type Textfile struct {
	Dir, Version string
	Place        metrics.Place
	Tolerance    time.Duration // by which a text may come early, with a look that is due
	file         *textfile.File
	acted        metrics.Acted
	some         bool          // a text was put
	at           time.Duration // of the last that was due by its time
}

// Figures are what the metrics are made of.
type Figures struct {
	Limits []event.Limit
	Procs  []rss.Proc
	Kills  []limit.Kills
	Ranks  int // 0 for none to tell
	At     time.Time
}

// Open begins the file. Rules tell which actions there may be; why says that it cannot be
// written, as far as is known.
func (x *Textfile) Open(name textfile.Name, proc string, rules []event.Rule, why string) {
	for _, r := range rules {
		x.acted.Expect(r.Action)
	}
	x.file = textfile.Open(x.Dir, name, proc)
	if why != "" {
		x.file.Failed(errors.New(why))
	}
}

// Count takes in the outcome of a decision.
func (x *Textfile) Count(d *event.Decision, o *event.Outcome) {
	if x.file == nil {
		return
	}
	freed := o.Freed
	if d.Limit.Counts() {
		freed = 0
	}
	x.acted.Count(d.Action, metrics.ResultOf(o), freed)
}

// due says whether a text is due.
func (x *Textfile) due(now time.Duration, decided bool) bool {
	if !decided {
		if x.some && now-x.at < textfileEvery-x.Tolerance {
			return false
		}
		x.at = now
	}
	x.some = true
	return true
}

// Metrics returns the metrics.
func (x *Textfile) Metrics(f Figures) *metrics.Set {
	s := metrics.NewSet()
	s.Limits(x.Place, f.Limits)
	s.Processes(x.Place, f.Procs)
	s.Actions(x.Place, &x.acted)
	s.Put(&metrics.OOMKills, x.Place, float64(limit.OwnKills(f.Kills)))
	if f.Ranks > 0 {
		s.Put(&metrics.Ranks, x.Place, float64(f.Ranks))
	}
	s.Put(&metrics.LastLook, x.Place, float64(f.At.UnixMilli())/1000)
	s.Put(&metrics.BuildInfo, x.Place, 1, x.Version)
	return s
}

// Close has the file removed; the channel is closed when it is.
func (x *Textfile) Close() <-chan struct{} {
	if x.file == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	done := x.file.Close()
	x.file = nil
	return done
}

// Export has the text file hold these figures, where that is due or something was
// decided.
func (f *Fan) Export(now time.Duration, decided bool, figures func() Figures) {
	x := &f.Textfile
	if x.file == nil {
		return
	}
	if why, news := x.file.Trouble(); news {
		f.textfileNews(now, why)
	}
	if x.due(now, decided) {
		x.file.Put(x.Metrics(figures()).Text())
	}
}

// textfileNews tells that the file cannot be written, or can again: once each, though it
// be for the same reason as before.
func (f *Fan) textfileNews(now time.Duration, why error) {
	if why == nil {
		f.Say(now, "textfile", fmt.Sprintf("textfile: %s is written again", f.Textfile.Dir))
		return
	}
	f.ration(now, "fault textfile", fmt.Sprintf("textfile: %v; the command runs on", why), f.Warn)
	f.faultEvent("textfile", why.Error())
}
