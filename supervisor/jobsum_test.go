package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestCancelledBySlurmd: a job whose two steps have 517 of 400 MiB together is cancelled by
// slurmd from 26.05.3 on. The last lines say so, and advise what survives.
func TestCancelledBySlurmd(t *testing.T) {
	const stepd, task, other = 600, 4801, 4802
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nSelectTypeParameters=CR_Core_Memory\nTaskPlugin=task/none\nSLURM_VERSION=26.05.5\n"
	wardentest.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	for _, c := range []struct {
		name    string
		other   rss.Bytes // of step 0
		left    int       // seconds to the job's end
		sender  string
		outcome event.RunOutcome
		says    string
	}{
		{"over the job's memory", 252, 3600, "slurmstepd", event.RunSlurmKill, "next #SBATCH --mem=832M (rough guess: 1.5 × peak)"},
		{"scancel, with room", 52, 3600, "slurmstepd", event.RunCancelled, "✖ cancelled: SIGTERM (SIGTERM)"},
		{"the job's end", 252, 3, "slurmstepd", event.RunTimeout, "✖ Slurm time limit reached (SIGTERM)"},
		{"a signal of a user's", 252, 3600, "kill", event.RunCancelled, "✖ cancelled: SIGTERM, memory at 129 % of slurm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{
				"SLURM_JOB_ID": "2", "SLURM_STEP_ID": "-5", "SLURM_MEM_PER_NODE": "400", "SLURM_CONF": conf,
				"SLURM_JOB_END_TIME": fmt.Sprint(time.Now().Unix() + int64(c.left)),
			}
			s := newStand(t, with(env), func(o *Options) { o.Settings.Limit, o.Settings.Rules = 0, nil })
			s.fs.Put(rsstest.Process{PID: stepd, Parent: 1, Comm: "slurmstepd", Start: 3})
			s.fs.Put(rsstest.Process{PID: theHolder, Parent: stepd, Comm: "rsswarden", Start: 5, Anon: 5 * rss.MiB})
			s.put(theCommand, theHolder, 260*rss.MiB, 0)
			s.fs.Put(rsstest.Process{PID: task, Parent: stepd + 1, Comm: "sh", Start: 20, Anon: rss.MiB / 2})
			s.fs.Put(rsstest.Process{PID: stepd + 1, Parent: 1, Comm: "slurmstepd", Start: 4})
			s.fs.Put(rsstest.Process{PID: other, Parent: task, Comm: "hog", Start: 21, Anon: c.other * rss.MiB})
			const dir = "/slurm/uid_0/job_2/step_"
			s.fs.Write("proc/self/mountinfo", "41 31 0:37 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n")
			s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "7:freezer:"+dir+"batch\n")
			s.fs.Write("sys/fs/cgroup/freezer"+dir+"batch/cgroup.procs", fmt.Sprintf("%d\n%d\n", theHolder, theCommand))
			s.fs.Write("sys/fs/cgroup/freezer"+dir+"0/cgroup.procs", fmt.Sprintf("%d\n%d\n", task, other))
			s.fs.Write("proc/4711/comm", c.sender+"\n")
			s.open(s.holder.begin)
			s.later(10 * time.Second)
			s.full()
			s.full()
			s.tellSignal(hold.Signal{Signal: int(unix.SIGTERM), Sender: 4711, Forwarded: true})
			s.end(&hold.Exit{Signal: int(unix.SIGTERM)})
			wardentest.Has(t, s.last(event.NameExit), "outcome", string(c.outcome))
			s.told(c.says)
		})
	}
}
