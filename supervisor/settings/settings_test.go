package settings

import (
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestStartedBySite: workers are recycled where a rule of the site's or the user's says so, and
// a user who wants no line at all gets none.
func TestStartedBySite(t *testing.T) {
	for at, recycles := range map[string]bool{"": false, "95%:stop": false, "90%:recycle": true, "none 80%:trim": false} {
		s := Settings{Origins: []event.Setting{{Name: "at", Value: at}}}
		s.Rules = []event.Rule{{Action: event.ActionTrim}, {Action: event.ActionRecycle}}
		s.Quiet = at == ""
		s.StartedBySite()
		if got := len(s.Rules) == 2; got != recycles || s.Short == (at == "") || !s.Quiet || !s.BySite {
			t.Errorf("%q: %+v, %+v", at, s.Rules, s.Log)
		}
	}
}
