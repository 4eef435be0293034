package supervisor

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestEndIsAskedAgain: an administrator may have moved the job's end, and the
// environment does not tell.
func TestEndIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		answer answer
		fires  bool
	}{
		"as it was":      {answer{end: time.Now().Add(5 * time.Minute)}, true},
		"extended":       {answer{end: time.Now().Add(24 * time.Hour)}, false},
		"lifted":         {answer{endErr: slurm.ErrNoEnd}, false},
		"nobody answers": {answer{endErr: errors.New("no")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := inSlurm(t)
			s := opened(t, func(o *Options) {
				in(o)
				lookup := o.Lookup
				o.Lookup = func(k string) (string, bool) {
					if k == "SLURM_JOB_END_TIME" {
						return strconv.FormatInt(time.Now().Add(5*time.Minute).Unix(), 10), true
					}
					return lookup(k)
				}
				o.Settings.Rules = []string{"time eta<10m:warn"}
			})
			s.full()
			if s.asked == nil {
				t.Fatal("nobody was asked")
			}
			s.answered(test.answer)
			s.full()
			if s.asked != nil {
				t.Error("asked twice within 5 minutes")
			}
			if n := len(named(s.events(), event.NameDecision)); n > 1 || n == 1 != test.fires {
				t.Errorf("%d decisions, want one: %v", n, test.fires)
			}
		})
	}
}
