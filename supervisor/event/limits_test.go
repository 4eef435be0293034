package event

import "testing"

// TestLimitRows: every limit has the words that its kind needs.
func TestLimitRows(t *testing.T) {
	for _, n := range Limits {
		r := n.Row()
		counted := n.Thing() != ""
		switch {
		case n.Says() == "":
			t.Errorf("%s: no sentence", n)
		case counted != (n.Cure() != ""), counted == (n.Memory() || n == LimitTime):
			t.Errorf("%s: what runs out is %q, the cure %q", n, n.Thing(), n.Cure())
		case counted && (r.Use == "" || r.Alert == ""):
			t.Errorf("%s: no word for its use, or no name of an alert", n)
		case (r.Kills || r.Ladder || r.OfJob) && !n.Memory():
			t.Errorf("%s is not on memory: %+v", n, r)
		case r.Kills && r.Spares:
			t.Errorf("%s kills and spares", n)
		}
	}
	if n := LimitName("of tomorrow"); n.Memory() || n.Counts() || n.Row().Kills || !n.Row().Amount {
		t.Errorf("a limit of a newer version: %+v", n.Row())
	}
}
