package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// asked is the exit status by which examples/train says: I was asked to stop,
// the checkpoint is written, start me again.
const askedStatus = 99

// leaky is a job whose trainer itself leaks 4 MB a batch: no worker can give
// that back, and only a checkpoint saves what was learnt.
type leaky struct {
	stand
	mode slurmtest.Mode
}

func leakyStand(t *testing.T, mode slurmtest.Mode) leaky {
	t.Helper()
	wardentest.NeedTorch(t)
	c := slurmtest.Start(t, mode, slurmtest.Usual)
	s := leaky{stand{Cluster: c, rsswarden: c.Install(t, binary)}, mode}
	s.train = c.Install(t, "../../../../examples/train/train.py")
	c.Install(t, "../../../../examples/train/data.py")
	s.data = filepath.Join(c.Dir(), "small.lmdb")
	s.records = []string{"--data", s.data, "--records", "12000", "--record-bytes", "8000"}
	if got := c.Do(t, python, append([]string{s.train, "--epochs", "0", "--workers", "0"}, s.records...)...); got.Code != 0 {
		t.Fatalf("cannot make the data: %+v", got)
	}
	return s
}

func (s leaky) options(checkpoint string) []string {
	return append([]string{"--step-ms", "10", "--leak-trainer", "4000", "--checkpoint", checkpoint}, s.training()...)
}

// training is as long as two turns of the job: a cgroup counts once what
// trainer and workers share.
func (s leaky) training() []string {
	fraction := "0.7"
	if s.mode == slurmtest.Cgroup {
		fraction = "1"
	}
	return []string{"--workers", "2", "--persistent", "--epochs", "1", "--epoch-fraction", fraction}
}

// bare runs the job without rsswarden and wants it to die with nothing saved.
func (s leaky) bare(t *testing.T) {
	t.Helper()
	checkpoint := filepath.Join(s.Dir(), "bare")
	got := s.Submit(t, s.script("", s.options(checkpoint)...), "--mem=1200", "--no-requeue").Wait(t)
	want := got.State == "FAILED" && got.Signal == 9
	if s.mode == slurmtest.Cgroup {
		want = got.State == "OUT_OF_MEMORY"
	}
	if _, err := os.Stat(checkpoint); !want || err == nil {
		t.Errorf("bare: %s %d:%d, checkpoint %v: the test proves nothing", got.State, got.ExitCode, got.Signal, err)
	}
}

var turnLine = regexp.MustCompile(`(?m)^checkpoint at epoch \d+, batch (\d+): stopping$`)

// turn runs the job once. It returns whether the training is done, and its output.
func (s leaky) turn(t *testing.T, checkpoint string) (done bool, got slurmtest.Result, err error) {
	t.Helper()
	script := s.script(s.rsswarden+" run --at 93%:signal=USR2 --", s.options(checkpoint)...)
	got = s.Submit(t, script, "--mem=1200", "--no-requeue").Wait(t)
	_, saved := os.Stat(checkpoint)
	switch {
	case got.State == "COMPLETED":
		return true, got, nil
	case got.State != "FAILED" || got.ExitCode != askedStatus || got.Signal != 0:
		err = fmt.Errorf("%s %s %d:%d, want FAILED %d:0", got.State, got.Reason, got.ExitCode, got.Signal, askedStatus)
	case saved != nil || !turnLine.MatchString(got.Stdout):
		err = fmt.Errorf("no checkpoint: %v", saved)
	case strings.Count(got.Stderr, "USR2 sent to process ") != 1:
		err = fmt.Errorf("signalled %d times", strings.Count(got.Stderr, "USR2 sent to process "))
	case strings.Contains(got.Stderr, "OOM killer ended"):
		err = fmt.Errorf("an OOM kill")
	}
	return false, got, err
}

// TestCheckpoint: the trainer is asked in time, and what it saved carries the
// training on to the checksum of a run that nothing limits.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]slurmtest.Mode{"linux": slurmtest.Linux, "cgroup": slurmtest.Cgroup} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := leakyStand(t, mode)
			want := s.reference(t, s.training()...)
			s.bare(t)
			checkpoint := filepath.Join(s.Dir(), "checkpoint-"+name)
			for turn := 1; ; turn++ {
				done, got, err := s.turn(t, checkpoint)
				t.Logf("turn %d: %s %d:%d\n%s%s", turn, got.State, got.ExitCode, got.Signal, got.Stdout, wardentest.Said(got.Stderr))
				if err != nil {
					t.Fatal(err, "\n", got.Stderr)
				}
				if done {
					if sum := wardentest.Checksum(got.Stdout); sum != want || turn == 1 {
						t.Errorf("checksum %s after %d turns, want %s after several", sum, turn, want)
					}
					return
				}
				if turn == 5 {
					t.Fatal("no end after 5 turns")
				}
			}
		})
	}
}
