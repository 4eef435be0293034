package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// This file keeps the metrics of a run in a file for node_exporter, by --textfile. Who
// leads does, for all ranks that are led.

// exportEvery is the least time between two texts, but for those at a decision.
// Prometheus scrapes each 15 s to a minute.
const exportEvery = 15 * time.Second

// exporter is the loop's side of it.
type exporter struct {
	file  *textfile.File // nil without --textfile
	place metrics.Place
	acted metrics.Acted
	some  bool          // a text was put
	at    time.Duration // … when the last was that was due by its time
}

// startTextfile begins to tell. Rules tell which actions there may be.
func (w *watcher) startTextfile(rules []event.Rule) {
	if w.Settings.Textfile == "" {
		return
	}
	x := &w.exporter
	x.place = w.where()
	for _, r := range rules {
		x.acted.Expect(r.Action)
	}
	x.file = textfile.Open(w.Settings.Textfile, textfileName(w.Proc, w.ender(), x.place), w.Proc)
	if why := w.Settings.TextfileFault; why != "" {
		x.file.Failed(errors.New(why))
	}
}

// ender is the process whose end is that of the run: its holder, or who attached.
func (w *watcher) ender() int {
	if w.holder != 0 {
		return w.holder
	}
	return w.Self
}

// where says what the metrics of this run are known by. A job that is watched as a whole
// has no step.
func (w *watcher) where() metrics.Place {
	at := metrics.Place{Node: slurm.NodeName(w.Lookup), Run: runLabel(w.Settings.RunID)}
	switch job, ok := slurm.FromEnv(w.Lookup); {
	case w.Attached != nil && w.Attached.Job != "":
		at.JobID, at.Step, _ = strings.Cut(w.Attached.Job, ".")
	case w.Attached != nil && ok:
		at.JobID, at.Step = job.ID, job.StepID
	case w.Attached == nil:
		at.JobID, at.Step = jobAndStep(w.Lookup)
	}
	return at
}

func jobAndStep(lookup func(string) (string, bool)) (id, step string) {
	if job := RecordJob(lookup); job != nil {
		return job.ID, job.Step
	}
	return "", ""
}

// runLabel makes a short word of the name of a run.
func runLabel(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:4])
}

func textfileName(proc string, pid int, at metrics.Place) textfile.Name {
	return textfile.Of(proc, pid, at.JobID, at.Step, at.Node)
}

// RemoveTextfile removes what a watcher that was killed may have left of the run whose
// holder calls. It may hang.
func (s *Settings) RemoveTextfile(proc string, holder int, lookup func(string) (string, bool)) {
	id, step := jobAndStep(lookup)
	textfile.Remove(s.Textfile, textfile.Of(proc, holder, id, step, slurm.NodeName(lookup)))
}

// dropTextfile removes what we told before we were killed and started again: another
// leads now, and tells.
func (w *watcher) dropTextfile(begin hold.Begin) {
	if s := &w.Settings; s.Textfile != "" && begin.Attempt > 1 {
		go textfile.Remove(s.Textfile, textfileName(w.Proc, w.ender(), w.where()))
	}
}

// export has the file hold what is known now, where that is due or something was
// decided.
func (w *watcher) export(decided bool) {
	x := &w.exporter
	if x.file == nil {
		return
	}
	if why, news := x.file.Trouble(); news {
		w.textfileNews(why)
	}
	now := w.now()
	if !decided {
		if x.some && now-x.at < exportEvery-sameWake {
			return
		}
		x.at = now
	}
	x.some = true
	x.file.Put(w.metrics().Text())
}

// textfileNews tells that the file cannot be written, or can again: once each, though it
// be for the same reason as before.
func (w *watcher) textfileNews(why error) {
	if why == nil {
		w.voice.say(w.now(), "textfile", fmt.Sprintf("textfile: %s is written again", w.Settings.Textfile))
		return
	}
	w.voice.ration(w.now(), "fault textfile", fmt.Sprintf("textfile: %v; the command runs on", why), w.voice.log.Warn)
	w.put(event.NameFault, func(h event.Head) any {
		return event.Fault{Head: h, Part: "textfile", Error: why.Error()}
	})
}

// metrics are what the run is known by now, as of the last full look.
func (w *watcher) metrics() *metrics.Set {
	x := &w.exporter
	s := metrics.NewSet()
	s.Limits(x.place, w.readings)
	s.Processes(x.place, w.last.Procs)
	s.Actions(x.place, &x.acted)
	s.Put(&metrics.OOMKills, x.place, float64(ownKills(w.limits.OOMKills())))
	if w.Attached == nil {
		s.Put(&metrics.Ranks, x.place, float64(1+len(w.peers.others)))
	}
	s.Put(&metrics.LastLook, x.place, float64(w.last.At.UnixMilli())/1000)
	s.Put(&metrics.BuildInfo, x.place, 1, w.Settings.Version)
	return s
}

// count takes in what came of a decision.
func (x *exporter) count(d *event.Decision, o *event.Outcome) {
	if x.file == nil {
		return
	}
	freed := o.Freed
	if d.Limit.Counts() {
		freed = 0
	}
	x.acted.Count(d.Action, metrics.ResultOf(o), freed)
}

// closeTextfile has the file removed; the channel tells when it is.
func (x *exporter) closeTextfile() <-chan struct{} {
	if x.file == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	done := x.file.Close()
	x.file = nil
	return done
}
