package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// startTextfile begins the metrics of this run.
func (w *watcher) startTextfile() {
	s := &w.Settings
	if s.Textfile == "" {
		return
	}
	x := &w.tell.Textfile
	x.Dir, x.Version, x.Place, x.Tolerance = s.Textfile, s.Version, w.where(), sameWake
	x.Open(textfileName(w.Proc, w.ender(), x.Place), w.Proc, s.Rules, s.TextfileFault)
}

// ender is the process whose end is that of the run: its holder, or who attached.
func (w *watcher) ender() int {
	if w.pop.Holder != 0 {
		return w.pop.Holder
	}
	return w.Self
}

// where says what the metrics of this run are known by. A job that is watched as a whole
// has no step.
func (w *watcher) where() metrics.Place {
	at := metrics.Place{Node: slurm.NodeName(w.Lookup), Run: runLabel(w.Settings.RunID)}
	switch job, ok := slurm.FromEnv(w.Lookup); {
	case w.pop.Attached() && w.pop.Name != "":
		at.JobID, at.Step, _ = strings.Cut(w.pop.Name, ".")
	case w.pop.Attached() && ok:
		at.JobID, at.Step = job.ID, job.StepID
	case !w.pop.Attached():
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
		name := textfileName(w.Proc, w.ender(), w.where())
		probe.Run(func() { textfile.Remove(s.Textfile, name) })
	}
}

// figures are what the metrics are made of, as of the last full look.
func (w *watcher) figures() tell.Figures {
	f := tell.Figures{Limits: w.readings, Procs: w.last.Procs, Kills: w.limits.OOMKills(), At: w.last.At}
	if !w.pop.Attached() {
		f.Ranks = 1 + len(w.peers.others)
	}
	return f
}
