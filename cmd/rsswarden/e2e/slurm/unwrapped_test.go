package slurm

import (
	"os"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/adminline"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestReportOfAccounting: of tasks of an array and steps that ran bare the report says what
// slurmdbd keeps; the sums have those with a line in AdminComment beside those with a record. Without slurmdbd
// it says so.
func TestReportOfAccounting(t *testing.T) {
	t.Parallel()
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{Accounting: true})
	warden := c.Install(t, binary)
	report := func(args ...string) slurmtest.Output {
		// Jobs of other clusters on this machine may have that number.
		return c.Do(t, "env", append([]string{"XDG_STATE_HOME=" + c.Dir(), "TMPDIR=" + c.Dir(), "RSSWARDEN_RUNTIME=" + c.Dir(), warden, "report"}, args...)...)
	}
	line, err := adminline.Encode(adminline.Line{Nodes: map[string]adminline.Node{c.Node(): {Limit: 200 << 20, Peak: 50 << 20}}, Seconds: 60})
	wardentest.NoError(t, err)
	const held = "until [ -e over ]; do sleep 0.05; done"
	job := c.Submit(t, "srun true; "+held+"; exit 3", "--mem=200", "--array=5")
	wrapped := c.Submit(t, "exec "+warden+" run --events $PWD/events --record $PWD/records -- sh -c '"+held+"'", "--mem=300")
	job.Running(t)
	if out := c.Admin(t, "scontrol", "update", "JobId="+job.ID+"_5", "AdminComment="+line); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
	wrapped.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
		b, _ := os.ReadFile(wrapped.Dir + "/events")
		return strings.Contains(string(b), `"event":"sample"`)
	})
	if out := c.Do(t, "touch", job.Dir+"/over", wrapped.Dir+"/over"); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
	wrapped.Wait(t)
	job.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
		return strings.Contains(c.Do(t, "sacct", "-nP", "-j", job.ID+"_5", "-o", "State,AdminComment").Stdout, "FAILED|"+line)
	})
	for _, want := range []struct {
		args   []string
		status int
		says   []string
	}{
		{[]string{job.ID + "_5"}, 0, []string{"✖ command failed, exit 3: Slurm says FAILED", "of 200 MiB", "From    sacct, step ", ". No rsswarden record of this job in"}},
		{[]string{job.ID + "_5.0"}, 0, []string{"✔ finished: Slurm says COMPLETED", "sacct, step 0."}},
		{[]string{job.ID + ".batch", "--json"}, 0, []string{`"outcome": "failed"`, `"asked_step": "batch"`, `"limit_bytes": 209715200`}},
		{[]string{job.ID + ".7"}, 2, []string{`error: sacct knows no step "7" of job ` + job.ID, "hint: it has batch and 0"}},
		{[]string{"99999"}, 2, []string{"error: no run \"99999\" found", "hint: check the number"}},
		{[]string{"--since", "1d", "--by", "node", wrapped.Dir}, 0, []string{c.Node(), "2 jobs, 1 of them by AdminComment alone", "GiB-hours are of 2 jobs"}},
	} {
		out := report(want.args...)
		for _, says := range want.says {
			if out.Code != want.status || !strings.Contains(out.Stdout+out.Stderr, says) {
				t.Errorf("report %q: status %d, want %d and %q in\n%s%s", want.args, out.Code, want.status, says, out.Stdout, out.Stderr)
			}
		}
	}
	c.StopAccounting()
	if out := report("99999"); out.Code != 2 || !strings.Contains(out.Stderr, "Connection refused") || !strings.Contains(out.Stderr, "hint: Slurm's accounting does not answer") {
		t.Errorf("%+v", out)
	}
	if out := report(job.ID + "_5"); out.Code != 0 || !strings.Contains(out.Stdout, "From    scontrol show job.") {
		t.Errorf("%+v", out)
	}
	if out := report("--since", "1d", "--by", "user", c.Dir()); out.Code != 0 || !strings.Contains(out.Stdout, "jobs without a record are left out: cannot ask sacct about all jobs: ") {
		t.Errorf("%+v", out)
	}
}
