package tell

import (
	"fmt"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Start is how a watcher begins.
type Start struct {
	PID     int // of the command
	Attempt int // 1 for the first watcher of a run

	// Of what was attached to: the name of a job, its steps on this node, and what cannot
	// be done from outside.
	Job, Steps string
	Cannot     []string

	Rank   int    // of our command
	Outer  int    // rsswarden run that ours is within, 0 for none
	Parent string // the program that started the holder, where no other leads
	Slurm  slurm.Job
	Batch  bool // … and whether it is in one
}

// Start writes the start event and the first lines. Where another rank leads, that one tells
// of limits.
func (f *Fan) Start(s *Start, v *view.View) {
	f.Put(event.NameStart, func(h event.Head) any { return f.startEvent(h, s, v) })
	if f.Run.Holder == 0 {
		line := phrase.Watching(f.Run.Command, s.PID)
		if f.Run.WholeJob {
			line = phrase.WatchingJob(s.Job, s.Steps, len(v.Sample.Procs))
		}
		f.Info(line)
		f.Limits.room(v)
		for _, text := range s.Cannot {
			f.Info("attached: " + text)
		}
		return
	}
	if s.Attempt > 1 {
		f.Warn(fmt.Sprintf("the watcher had ended and was restarted (attempt %d); the command ran on", s.Attempt))
	}
	if s.Outer != 0 && (!f.Sum.Led || s.Rank <= 0) { // of several ranks one says it
		f.Warn(phrase.Nested(s.Outer, f.set.Dir != ""))
	}
	if f.Sum.Led {
		return
	}
	f.Info(phrase.Watching(f.Run.Command, s.PID))
	f.Limits.room(v)
	if text := phrase.NoExec(s.Slurm, s.Batch, s.Parent); text != "" && s.Outer == 0 { // the outer says it
		f.Warn(text)
	}
}

// NoteStart has the record of a successor begin as others do, with the rules and what else was
// set: nothing was recorded when that was told. It comes after the lead was told of, so that
// each lead of a record that has several has its own.
func (f *Fan) NoteStart(s *Start, v *view.View) {
	f.Note(event.NameStart, func(h event.Head) any { return f.startEvent(h, s, v) })
}

// StartAgain says that the lead fell to us, in the place of the first line.
func (f *Fan) StartAgain(s *Start, v *view.View) {
	f.Info(fmt.Sprintf("rank %d leads on this node now, the last leader has ended", s.Rank))
	f.Info(phrase.Watching(f.Run.Command, s.PID))
	f.Limits.room(v)
}

func (f *Fan) startEvent(h event.Head, s *Start, v *view.View) event.Start {
	e := event.Start{
		Head: h, Command: f.Run.Command, PID: s.PID, Version: f.Run.Version,
		Settings: f.set.Origins, Rules: f.set.RuleTexts(), Limits: append([]event.Limit{}, v.Limits...), Restarts: max(s.Attempt-1, 0),
	}
	if f.Run.Holder == 0 {
		e.Attached, e.Job, e.Cannot = true, s.Job, s.Cannot
	}
	return e
}
