package event

import (
	"slices"
	"strings"
	"testing"
)

// TestActionRows: every action has the words that its kind needs.
func TestActionRows(t *testing.T) {
	commands := map[string]Action{}
	for _, a := range RecordedActions {
		r := a.Row()
		switch {
		case r.says == "" || !strings.HasPrefix(r.form, string(a)):
			t.Errorf("%s: its form is %q, its sentence %q", a, r.form, r.says)
		case strings.Contains(r.form, "=") != (r.arg != nil):
			t.Errorf("%s: its form is %q, and what reads its argument is there: %v", a, r.form, r.arg != nil)
		case !a.Acts() && (a.Frees() || r.Ends):
			t.Errorf("%s is of two kinds: %+v", a, r)
		case !r.former && r.Thing == "":
			t.Errorf("%s: nothing to count of it", a)
		case a.Acts() && !r.former && r.Did == "":
			t.Errorf("%s: no word for it in the past tense", a)
		case a.Asks() && r.DidTo == nil:
			t.Errorf("%s: no words for the asked process", a)
		case (r.Command == "") != (r.Asked == ""):
			t.Errorf("%s by hand: %q, %q", a, r.Command, r.Asked)
		case (r.Trims || r.Single || r.Unmaps || r.BacksOff || r.worth != nil) && !a.Frees():
			t.Errorf("%s frees nothing: %+v", a, r)
		case r.Command != "" && commands[r.Command] != "":
			t.Errorf("%s and %s are one command", a, commands[r.Command])
		}
		commands[r.Command] = a
	}
	for a, want := range map[Action]bool{
		ActionWarn: true, ActionTrim: true, ActionRecycle: true, ActionStop: true, ActionGC: true, ActionSignal: true,
		ActionExec: true, ActionRequeue: true, "explode": false, ActionTrimDrop: false,
	} {
		if slices.Contains(Actions, a) != want || slices.Contains(RecordedActions, a) != (want || a == ActionTrimDrop) {
			t.Errorf("%s: rules have %v, records %v", a, Actions, RecordedActions)
		}
	}
	if a := Action("of tomorrow"); a.Asks() || a.Frees() || !a.Acts() || a.Severity() != len(RecordedActions) {
		t.Errorf("an action of a newer version: %+v", a.Row())
	}
}

// TestWordsForPeople: the words for an action that was not tried name the signal, and no program,
// which may be long; where a detail says all, it stands in the place of the reason.
func TestWordsForPeople(t *testing.T) {
	skipped := func(text string) string { r := rule(t, text); return r.Action.Skipped(r.Arg) }
	for _, c := range [][2]string{
		{skipped("90%:recycle"), "recycle skipped"},
		{skipped("90%:signal=USR2@rank0"), "signal=USR2@rank0 skipped"},
		{skipped("90%:exec=/bin/true"), "exec skipped"},
		{skipped("90%:requeue=12G"), "requeue skipped"},
		{ActionTrim.Why(ReasonNoHelp), "mapped pages do not count in this limit"},
		{ActionSignal.Why(ReasonNoHelp), "it does not lower this limit"},
		{ActionRecycle.Why(ReasonNoWorker), "no DataLoader workers found"},
		{ReasonUnsupported.With("not in a Slurm job"), "not in a Slurm job"},
		{ReasonNoWorker.With("process 7: conda"), "no DataLoader workers found (process 7: conda)"},
		{ReasonTimeout.With(""), "no answer in time"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
}
