package event

// This file has what manual and reference say of limits and actions, a sentence each.

var actionSays = map[Action]struct{ form, says string }{
	ActionWarn:     {"warn", "Say so on stderr, and whom to tell by --alert."},
	ActionTrim:     {"trim", "Workers drop mapped file pages, which stay in the page cache."},
	ActionTrimDrop: {"trim+drop", "Of former versions: trim, and the pages left the page cache."},
	ActionRecycle:  {"recycle", "A loader worker is replaced by a fresh one, and no batch is lost."},
	ActionGC:       {"gc", "Trainers and workers collect garbage and give free memory back."},
	ActionSignal:   {"signal=SIG", "Trainers that catch SIG are sent it; SIG@rank0 asks rank 0 alone."},
	ActionExec:     {"exec=COMMAND", "A program of yours is told, on its standard input and in RSSWARDEN_ variables."},
	ActionRequeue:  {"requeue, requeue=MORE", "The job goes back into the queue and starts again with more memory: requeue=+50%."},
	ActionStop:     {"stop", "TERM, and KILL after --grace."},
}

// Form is how the action is written in a rule: "signal=SIG".
func (a Action) Form() string { return actionSays[a].form }

// Says is what the action does, for people.
func (a Action) Says() string { return actionSays[a].says }
