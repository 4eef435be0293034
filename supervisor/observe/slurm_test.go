package observe

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// inJob is an observer of a job that ends in so long, and scontrol by hand.
func inJob(t *testing.T, left time.Duration) (*stand, *probetest.ByHand[SlurmQuestion, SlurmAnswer]) {
	s := newStand(t, func(_ *settings.Settings, env map[string]string) {
		env["SLURM_JOB_ID"], env["SLURMD_NODENAME"], env["SLURM_LOCALID"] = "7", "n1", "1"
		env["SLURM_JOB_END_TIME"] = strconv.FormatInt(time.Now().Add(left).Unix(), 10)
	})
	hand := probetest.New[SlurmQuestion, SlurmAnswer](new(probe.Set))
	s.Slurm.Reader = hand.Reader
	return s, hand
}

// TestJobEnd is asked for once more shortly before a rule on it would fire, by one process
// of the node, and not again within minutes.
func TestJobEnd(t *testing.T) {
	for name, c := range map[string]struct {
		left, ahead time.Duration
		asks        bool
		want        bool
	}{
		"no rule":               {time.Minute, 0, true, false},
		"far":                   {time.Hour, 10 * time.Minute, true, false},
		"near":                  {10 * time.Minute, 10 * time.Minute, true, true},
		"near, another asks it": {10 * time.Minute, 10 * time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, hand := inJob(t, c.left)
			s.Slurm.Asks = c.asks
			left, asking := s.JobEnd(s.now, s.v, c.ahead)
			if (left-c.left).Abs() > 2*time.Second || asking != c.want {
				t.Fatalf("%v are left, asking %v", left, asking)
			}
			if !asking {
				return
			}
			hand.Answer(t, SlurmAnswer{End: time.Now().Add(c.left)})
			if h := s.Hear(s.now, s.v, rungs{}); !h.Full || len(h.News) != 0 {
				t.Errorf("heard %+v", h)
			}
			if _, again := s.JobEnd(s.now+time.Minute, s.v, c.ahead); again {
				t.Error("asked again after a minute")
			}
			s.Slurm.Slept()
			if _, again := s.JobEnd(s.now+time.Minute, s.v, c.ahead); !again {
				t.Error("not asked again after the job was suspended")
			}
			hand.Answer(t, SlurmAnswer{})
		})
	}
}

// TestJobEndIsNotKnown: that scontrol does not say when is a fault where a rule waits for it.
func TestJobEndIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		err   error
		ahead time.Duration
		tells bool
	}{{errors.New("no"), time.Minute, true}, {errors.New("no"), 0, false}, {slurm.ErrNoEnd, time.Minute, false}} {
		s, _ := inJob(t, time.Hour)
		var news view.News
		if s.heardSlurm(&SlurmAnswer{EndErr: c.err}, c.ahead, &news); len(news) > 0 != c.tells {
			t.Errorf("%v, a rule %v ahead: told %v", c.err, c.ahead, news)
		}
	}
}
