package policy

import (
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestParseRecorded: a ladder of a record may have trim+drop, which came between
// trim and recycle, and again after a while. No other rule that is refused today
// is read.
func TestParseRecorded(t *testing.T) {
	var ladder []event.Rule
	for _, text := range []string{"80%:recycle", "80%:trim+drop", "80%:trim"} {
		r, err := event.ParseRecorded(text)
		if err != nil || r.String() != text {
			t.Fatalf("%s: %v, %v", text, r, err)
		}
		ladder = append(ladder, r)
	}
	c := &script{t: t, s: New(ladder, Options{}), can: canAll}
	for _, want := range []string{"80%:trim", "80%:trim+drop", "80%:recycle"} {
		c.want(c.at(second, slurm(90)), want)
		c.done(true, event.ReasonDone, 90, 90)
	}
	c = &script{t: t, s: New(ladder[1:2], Options{}), can: canAll}
	c.want(c.at(second, slurm(90)), "80%:trim+drop")
	c.done(true, event.ReasonDone, 90, 89.9)
	c.want(c.at(second, slurm(90)))
	c.want(c.at(30*second, slurm(90)), "80%:trim+drop")
	if r, err := event.ParseRecorded("80%:explode"); err == nil {
		t.Errorf("80%%:explode is read as %v", r)
	}
}
