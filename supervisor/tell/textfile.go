package tell

import (
	"errors"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// textfileEvery is the least time between two texts, but for those at a decision.
// Prometheus scrapes each 15 s to a minute.
const textfileEvery = 15 * time.Second

// Textfile keeps the metrics of a run in a file for node_exporter, by --textfile. Who
// leads does, for all ranks that are led.
type Textfile struct {
	dir, version string
	place        metrics.Place
	file         *textfile.File
	acted        metrics.Acted
	some         bool          // a text was put
	at           time.Duration // of the last that was due by its time
}

// OpenTextfile begins the file, if any. attached is what [Run.Place] takes.
func (f *Fan) OpenTextfile(attached string) {
	x := &f.Textfile
	x.dir, x.version, x.place = f.set.Textfile, f.Run.Version, f.Run.Place(attached)
	if x.dir == "" {
		return
	}
	for _, r := range f.set.Rules {
		x.acted.Expect(r.Action)
	}
	x.file = textfile.Open(x.dir, f.Run.textfile(x.place), f.Run.Proc)
	if f.set.TextfileFault != "" {
		x.file.Failed(errors.New(f.set.TextfileFault))
	}
}

// DropTextfile removes what an earlier watcher of this run told before it was killed:
// another leads now, and tells.
func (f *Fan) DropTextfile() {
	if dir := f.set.Textfile; dir != "" {
		name := f.Run.textfile(f.Run.Place(""))
		probe.Run(func() { textfile.Remove(dir, name) })
	}
}

// RemoveTextfile removes what a watcher that was killed may have left of the run of that
// holder. It may hang.
func RemoveTextfile(dir, proc string, holder int, lookup func(string) (string, bool)) {
	r := Run{Proc: proc, Holder: holder, Node: slurm.NodeName(lookup), Job: JobOf(lookup)}
	textfile.Remove(dir, r.textfile(r.Place("")))
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
		if x.some && now-x.at < textfileEvery-early {
			return false
		}
		x.at = now
	}
	x.some = true
	return true
}

// Metrics returns the metrics. kills are the kernel's.
func (x *Textfile) Metrics(l *Look, kills []limit.Kills) *metrics.Set {
	s := metrics.NewSet()
	s.Limits(x.place, l.View.Limits)
	s.Processes(x.place, l.View.Sample.Procs)
	s.Actions(x.place, &x.acted)
	s.Put(&metrics.OOMKills, x.place, float64(limit.OwnKills(kills)))
	if l.Ranks > 0 {
		s.Put(&metrics.Ranks, x.place, float64(l.Ranks))
	}
	s.Put(&metrics.LastLook, x.place, float64(l.View.Sample.At.UnixMilli())/1000)
	s.Put(&metrics.BuildInfo, x.place, 1, x.version)
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

// export has the text file hold what a look has, where that is due or something was
// decided.
func (f *Fan) export(l *Look, decided bool) {
	x := &f.Textfile
	if x.file == nil {
		return
	}
	if why, news := x.file.Trouble(); news {
		f.textfileNews(l.Now, why)
	}
	if x.due(l.Now, decided) {
		x.file.Put(x.Metrics(l, f.Readers.Kills()).Text())
	}
}

// textfileNews tells that the file cannot be written, or can again: once each, though it
// be for the same reason as before.
func (f *Fan) textfileNews(now time.Duration, why error) {
	if why == nil {
		f.Say(now, "textfile", fmt.Sprintf("textfile: %s is written again", f.Textfile.dir))
		return
	}
	f.ration(now, "fault textfile", fmt.Sprintf("textfile: %v; the command runs on", why), f.Warn)
	f.faultEvent("textfile", why.Error())
}
