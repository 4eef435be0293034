package tell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// textfileEvery is the least time between two texts, but for those at a decision.
// Prometheus scrapes each 15 s to a minute.
const textfileEvery = 15 * time.Second

// Textfile keeps the metrics of a run in a file for node_exporter, by --textfile. Who
// leads does, for all ranks that are led.
type Textfile struct {
	out   *events
	place metrics.Place
	file  *textfile.File
	soFar func() (peak *event.Limit, done *event.Saved)
	some  bool          // a text was put
	at    time.Duration // of the last that was due by its time

	Removed <-chan struct{} // is closed when [Textfile.Close] has come to an end; nil before it
}

// Open begins the file, if any. attached is what [Run.Place] takes.
func (x *Textfile) Open(attached string) {
	set, run := x.out.set, &x.out.Run
	x.place = run.Place(attached)
	if set.Textfile == "" {
		return
	}
	x.file = textfile.Open(set.Textfile, run.textfile(x.place), run.Proc)
	if set.TextfileFault != "" {
		x.file.Failed(errors.New(set.TextfileFault))
	}
}

// Drop removes what an earlier watcher of this run told before it was killed:
// another leads now, and tells.
func (x *Textfile) Drop() {
	if dir := x.out.set.Textfile; dir != "" {
		name := x.out.Run.textfile(x.out.Run.Place(""))
		probe.Run(func() { textfile.Remove(dir, name) })
	}
}

// RemoveTextfile removes what a watcher that was killed may have left of the run of that
// holder. It may hang.
func RemoveTextfile(dir, proc string, holder int, lookup func(string) (string, bool)) {
	r := Run{Proc: proc, Holder: holder, Node: slurm.NodeName(lookup), Job: JobOf(lookup)}
	textfile.Remove(dir, r.textfile(r.Place("")))
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

// Metrics returns the metrics. kills are the kernel's, costs what our processes cost.
func (x *Textfile) Metrics(l *Look, kills []limit.Kills, costs []event.Cost) *metrics.Set {
	s := metrics.NewSet()
	s.Limits(x.place, l.View.Limits)
	s.Processes(x.place, l.View.Sample.Procs)
	peak, done := x.soFar()
	s.Peak(x.place, peak)
	s.Actions(x.place, x.out.set.Rules, done)
	s.Self(x.place, costs)
	s.Put(&metrics.OOMKills, x.place, float64(limit.OwnKills(kills)))
	if l.Ranks > 0 {
		s.Put(&metrics.Ranks, x.place, float64(l.Ranks))
	}
	s.Put(&metrics.LastLook, x.place, float64(l.View.Sample.At.UnixMilli())/1000)
	s.Put(&metrics.BuildInfo, x.place, 1, x.out.Run.Version)
	return s
}

// Close has the file removed.
func (x *Textfile) Close() {
	if x.file != nil {
		x.Removed = x.file.Close()
		x.file = nil
	}
}

// Ended counts the run among those that have ended, in a file that stays. It returns a
// channel that is closed when that is done, nil where nothing is.
func (x *Textfile) Ended(o event.RunOutcome) <-chan struct{} {
	dir, uid := x.out.set.Textfile, os.Geteuid()
	if dir == "" {
		return nil
	}
	done := make(chan struct{})
	// Files of two users must not have the same series.
	at := metrics.Place{Node: x.place.Node, Run: record.Label("user " + strconv.Itoa(uid))}
	probe.Run(func() {
		defer close(done)
		_ = textfile.Update(filepath.Join(dir, textfile.OfUser(uid, at.Node)), func(old []byte) []byte {
			return metrics.RunEnded(old, at, o).Text()
		})
	})
	return done
}

// look has the file hold what a look has, where that is due or something was decided.
func (x *Textfile) look(l *Look, decided bool, kills func() []limit.Kills, costs func(time.Duration) []event.Cost) {
	if x.file == nil {
		return
	}
	if why, news := x.file.Trouble(); news {
		x.tell(l.Now, why)
	}
	if x.due(l.Now, decided) {
		x.file.Put(x.Metrics(l, kills(), costs(l.Now)).Text())
	}
}

// tell tells that the file cannot be written, or can again: once each, though it
// be for the same reason as before.
func (x *Textfile) tell(now time.Duration, why error) {
	if why == nil {
		x.out.Say(now, "textfile", "textfile: written again")
		return
	}
	x.out.ration(now, Kind{Name: "fault textfile", Thing: "fault"}, fmt.Sprintf("textfile: %v; the command runs on", why), x.out.Warn)
	x.out.faultEvent("textfile", why.Error())
}
