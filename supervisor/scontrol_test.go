package supervisor

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
)

// TestEndIsAskedAgain: an administrator may have moved the job's end, and the
// environment does not say. If scontrol does not either, a line says so.
func TestEndIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		answer observe.SlurmAnswer
		fires  bool
	}{
		"as it was": {observe.SlurmAnswer{End: time.Now().Add(5 * time.Minute)}, true},
		"extended":  {observe.SlurmAnswer{End: time.Now().Add(24 * time.Hour)}, false},
		"lifted":    {observe.SlurmAnswer{EndErr: slurm.ErrNoEnd}, false},
		"no answer": {observe.SlurmAnswer{EndErr: errors.New("no")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, inSlurm(t, time.Now().Add(5*time.Minute)), func(o *Options) { o.Settings.Rules = mustRules("time eta<10m:warn") })
			hand := probetest.New[observe.SlurmQuestion, observe.SlurmAnswer](&s.probes)
			s.observe.Slurm.Reader = hand.Reader
			s.open(s.holder.begin)
			s.full()
			hand.Answer(t, test.answer)
			if !s.heardProbes() {
				t.Error("the answer is not taken")
			}
			s.full()
			if s.observe.Slurm.Busy() {
				t.Error("asked twice within 5 minutes")
			}
			if n := s.count(event.NameDecision); n > 1 || n == 1 != test.fires {
				t.Errorf("%d decisions, want one: %v", n, test.fires)
			}
			if told := s.count(event.NameFault, "part", "scontrol") > 0; told != (name == "no answer") {
				t.Errorf("a missing answer is reported: %v", told)
			}
		})
	}
}

func TestScontrolsAnswerIsTold(t *testing.T) {
	// Neither a configuration that can be read nor the job's end.
	env := map[string]string{"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "2000", "SLURM_CONF": filepath.Join(t.TempDir(), "none")}
	s := opened(t, with(env))
	end := time.Now().Add(time.Hour)
	s.answered(observe.SlurmAnswer{Rules: slurm.Enforcement{Known: true, OverMemoryKill: true, Gather: "linux", Version: "24.11.5"}, Open: true, End: end})
	s.full()
	var told []string
	for _, e := range named(s.events(), event.NameLimit) {
		name, ok := e["limit"].(string)
		if !ok {
			t.Fatalf("event %v names no limit", e)
		}
		told = append(told, name)
	}
	slices.Sort(told)
	if !slices.Equal(told, []string{"slurm", "time"}) {
		t.Errorf("reported %v", told)
	}
}

// answered has scontrol answer.
func (s *stand) answered(a observe.SlurmAnswer) {
	s.t.Helper()
	hand := probetest.New[observe.SlurmQuestion, observe.SlurmAnswer](&s.probes)
	s.observe.Slurm.Reader = hand.Reader
	hand.Ask(observe.SlurmQuestion{}, true)
	hand.Answer(s.t, a)
	s.heardProbes()
}
