package slurm

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The ways in which a site's Slurm kills, by Slurm 24.11 with cgroup/v1: the
// rest of [slurmtest.Modes] is in the endurance tests.
var modes2411 = []slurmtest.Mode{slurmtest.Linux, slurmtest.CgroupKill, slurmtest.Cgroup, slurmtest.CgroupLinux}

// TestSlurm2411 is [TestAccountings] with Slurm 24.11 and Python 3.13: the same
// rows, the same limits, counters and enforcers, the same jobs that die bare
// and end well wrapped.
func TestSlurm2411(t *testing.T) { accountingsOn(t, debian.Trixie, modes2411) }

func accountingsOn(t *testing.T, suite debian.Suite, modes []slurmtest.Mode) {
	for kind, inCgroups := range map[string]bool{"outside": false, "in cgroups": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // each kind has a cluster of its own
			for _, mode := range modes {
				if mode.InCgroups() == inCgroups {
					t.Run(string(mode), func(t *testing.T) {
						startAccountingOn(t, mode, slurmtest.Options{Suite: suite}).rows(t, mode)
					})
				}
			}
		})
	}
}

// newerTrainings are trainings that die bare.
var newerTrainings = []struct {
	mode    slurmtest.Mode
	mem     string
	options []string
	bare    string
}{
	{slurmtest.Linux, memory(3000, 1700), []string{"--persistent", "--workers", "4", "--epochs", "2"}, "FAILED"},
	{slurmtest.Cgroup, memory(1500, 800), []string{"--persistent", "--workers", "4", "--epochs", "3", "--leak-worker", "60"}, "OUT_OF_MEMORY"},
}

// TestSlurm2411Torch26 trains with PyTorch 2.6 in a job of Slurm 24.11.
func TestSlurm2411Torch26(t *testing.T) { trainingsOn(t, debian.Trixie) }

func trainingsOn(t *testing.T, suite debian.Suite) {
	for _, c := range newerTrainings[:wardentest.Few(len(newerTrainings), 1)] {
		t.Run(string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: suite, CPUs: 4, RealMemory: 20000})
			want := s.reference(t, c.options...)
			if bare := s.Submit(t, s.script("", c.options...), c.mem, "--no-requeue").Wait(t); bare.State != c.bare {
				t.Errorf("bare: %s, want %s: the test proves nothing", bare.State, c.bare)
			}
			s.carried(t, want, s.script(s.rsswarden+" run --", c.options...), c.mem, "--no-requeue")
		})
	}
}

// TestSlurmSid is [TestSlurm2411] with the newest Slurm and the newest Python that Debian has.
func TestSlurmSid(t *testing.T) {
	accountingsOn(t, debian.Sid, modes2411[:wardentest.Few(len(modes2411), 1)])
}

// TestSlurmSidTorch trains with the newest PyTorch that Debian has in a job of its Slurm.
func TestSlurmSidTorch(t *testing.T) { trainingsOn(t, debian.Sid) }

// TestSlurmSidRequeue is [TestRequeue] with the newest Slurm that Debian has.
func TestSlurmSidRequeue(t *testing.T) { requeueOn(t, debian.Sid, slurmtest.Linux) }

// TestSlurmJobSum: from 26.05.3 on slurmd cancels a job whose steps on a node have more
// than its memory together, though none has more than its own limit. A training that gives
// pages back completes beside another step. For one that leaks, the summary names Slurm,
// and it completes with the memory that is advised.
func TestSlurmJobSum(t *testing.T) {
	s := trainStandOn(t, slurmtest.Linux, slurmtest.Options{Suite: debian.Sid, CPUs: 4, RealMemory: 20000, Conf: "SlurmdTimeout=6"})
	grow := python + " " + s.Install(t, "testdata/jobs/growslowly.py")
	// The second step runs until the first ends, which ends the job.
	beside := func(mib int, command string) string {
		return fmt.Sprintf("srun --overlap -n1 %s %d 600 0.05 & exec %s", grow, mib, command)
	}

	t.Run("training", func(t *testing.T) {
		options := []string{"--persistent", "--workers", "1", "--epochs", "2"}
		want := s.reference(t, options...)
		mem := memory(3000, 2150)
		if bare := s.Submit(t, beside(1200, s.training(append(options, "--epochs", "20")...)), mem, "--no-requeue").Wait(t); bare.State != "CANCELLED" {
			t.Errorf("bare: %s %d:%d, want CANCELLED: the test proves nothing\n%s", bare.State, bare.ExitCode, bare.Signal, bare.Stderr)
		}
		got := s.carried(t, want, beside(1200, s.rsswarden+" run -- "+s.training(options...)), mem, "--no-requeue")
		wardentest.Says(t, wardentest.Said(got.Stderr), "Slurm cancels the job at summed RSS, all steps of the job on this node")
	})

	t.Run("leak", func(t *testing.T) {
		script := "export XDG_STATE_HOME=$PWD XDG_CACHE_HOME=$PWD; echo -n $SLURM_JOB_SLUID >sluid\n" + beside(200, s.rsswarden+" run -- "+grow+" 300 5 0.5")
		run := s.Submit(t, script, "--mem=400", "--no-requeue")
		got := run.Wait(t)
		t.Logf("%s %d:%d\n%s", got.State, got.ExitCode, got.Signal, wardentest.Said(got.Stderr))
		if got.State != "CANCELLED" {
			t.Fatalf("%s %d:%d, want CANCELLED: the test proves nothing\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
		}
		advice := regexp.MustCompile(`(?s)out of memory: Slurm killed the job.*next #SBATCH --mem=(\w+) `).FindStringSubmatch(wardentest.Said(got.Stderr))
		if advice == nil {
			t.Fatalf("another summary:\n%s", wardentest.Said(got.Stderr))
		}
		sluid := wardentest.ReadFile(t, run.Dir+"/sluid")
		out := s.Do(t, "env", "XDG_STATE_HOME="+run.Dir, "XDG_CACHE_HOME="+run.Dir, s.rsswarden, "report", "--json", string(sluid))
		var r analysis.Result
		if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
			t.Fatalf("report: %v\n%s%s", err, out.Stdout, out.Stderr)
		}
		if r.Cause != event.CauseOverKill || !strings.Contains(r.Verdict, "cancelled by slurmd (OverMemoryKill): the steps of the job on this node had ") {
			t.Errorf("report: %s, %s", r.Cause, r.Verdict)
		}
		if again := s.Submit(t, script, "--mem="+advice[1], "--no-requeue").Wait(t); again.State != "COMPLETED" {
			t.Errorf("with --mem=%s: %s %d:%d\n%s", advice[1], again.State, again.ExitCode, again.Signal, again.Stderr)
		}
	})
}
