package supervisor

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRequeueDryRun: nothing is asked for or signalled.
func TestRequeueDryRun(t *testing.T) {
	f := newFakeSlurm(t)
	s := inJob46(t, nil, func(o *Options) { o.Settings.DryRun, o.Settings.CheckpointSignal = true, "USR1" })
	s.put(theCommand, theHolder, 980*rss.MiB, 0)
	s.looksUntil("decision", func() bool { return strings.Contains(s.stderr(), "would requeue (dry run)") })
	if calls := f.calls(t); len(calls) > 0 || s.acts.InFlight() != nil {
		t.Errorf("asked for %q", calls)
	}
}

// TestRequeueAtTheEnd: the command ends while its checkpoint is waited for.
func TestRequeueAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		exit     *hold.Exit
		before   func(*stand)
		requeued bool
		reason   event.Reason
	}{
		{"by itself", &hold.Exit{}, nil, true, event.ReasonDone},
		{"with a status", &hold.Exit{Code: 99}, nil, true, event.ReasonDone},
		{"by a TERM from outside", &hold.Exit{Signal: 15}, func(s *stand) {
			s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: 1, Forwarded: true}
		}, false, event.ReasonVanished},
		{"with the holder", nil, nil, false, event.ReasonVanished},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSlurm(t)
			s := inJob46(t, nil, func(o *Options) { o.Settings.CheckpointSignal = "USR1" })
			// The command is this process: it takes the signal, and goes on.
			got := make(chan os.Signal, 8)
			signal.Notify(got, syscall.SIGUSR1)
			defer signal.Stop(got)
			const start = 77
			s.fs.Put(rsstest.Process{PID: os.Getpid(), Parent: theHolder, Start: start, Comm: "python", Anon: 980 * rss.MiB})
			s.catches(os.Getpid(), "0000000000000200")
			s.observe.Pop.Command = rss.ProcID{PID: os.Getpid(), Start: start}
			s.looksUntil("signal", func() bool { return len(got) > 0 })
			if calls := f.calls(t); len(calls) > 0 {
				t.Fatalf("asked for %q before the checkpoint", calls)
			}
			if c.before != nil {
				c.before(s)
			}
			s.end(c.exit)
			if calls := f.calls(t); c.requeued != slices.Contains(calls, "release 46") {
				t.Errorf("asked for %q", calls)
			}
			last := s.last(event.NameOutcome)
			if last["reason"] != string(c.reason) || c.requeued && !strings.Contains(last["detail"].(string), "; the command ended after ") {
				t.Errorf("outcome %v", last)
			}
		})
	}
}

// TestRequeueIsTakenUp: the process that has held the job is killed. A job that
// stays held never starts again, so another one goes on.
func TestRequeueIsTakenUp(t *testing.T) {
	f := newFakeSlurm(t)
	f.write(t, "kill-update", "")
	s := inJob46(t, nil)
	s.put(theCommand, theHolder, 980*rss.MiB, 0)
	s.looksUntil("decision", func() bool { return s.acts.InFlight() != nil })
	s.looksUntil("outcome", func() bool { return s.acts.InFlight() == nil })
	calls := f.calls(t)
	if calls[0] != "requeuehold 46" || calls[len(calls)-1] != "release 46" || slices.Contains(calls[1:], "requeuehold 46") {
		t.Errorf("asked for %q", calls)
	}
	if job := f.read(t, "job"); !strings.Contains(job, "MinMemoryNode=1250M") || strings.Contains(job, "held") {
		t.Errorf("the job stands as %s", job)
	}
	s.told("requeued with 1250 MiB (was 1000)")
}

// TestRequeueJobOutlives what ends the others: signals, and the end of its reader.
func TestRequeueJobOutlives(t *testing.T) {
	f := newFakeSlurm(t)
	f.write(t, "wait-update", "")
	job, err := slurm.ParseRunningJob([]byte(fakeJob), "46")
	wardentest.NoError(t, err)
	dir := filepath.Join(t.TempDir(), ".rsswarden")
	plan, err := json.Marshal(action.RequeuePlan{Job: job, MiB: 1250, Places: record.Places{Journals: []string{dir}}, Line: record.RequeueEntry{Rule: "97%:requeue", Because: "it was full", Run: "r"}})
	wardentest.NoError(t, err)
	cmd := exec.Command("/proc/self/exe", action.RequeueCommand)
	cmd.Stdin = strings.NewReader(string(plan))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	wardentest.NoError(t, err)
	wardentest.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), slurm.StepHold) {
	}
	out.Close() // as the watcher's end does
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		wardentest.NoError(t, cmd.Process.Signal(sig))
	}
	wardentest.NoError(t, os.Remove(filepath.Join(string(f), "wait-update")))
	wardentest.NoError(t, cmd.Wait())
	if job := f.read(t, "job"); !strings.Contains(job, "MinMemoryNode=1250M") || strings.Contains(job, "held") {
		t.Errorf("the job stands as %s", job)
	}
	past, ok := record.LastRequeue(record.ReadRequeueLog(record.Places{Journals: []string{dir}}, "46", "", time.Now()), 1)
	if !ok || !past.Raised || past.Because != "it was full" || past.FromMiB != 1000 || past.ToMiB != 1250 {
		t.Errorf("left behind %+v, %v", past, ok)
	}
}

// TestRequeueJobWithoutFiles: a file system that takes nothing keeps no job held.
func TestRequeueJobWithoutFiles(t *testing.T) {
	f := newFakeSlurm(t)
	job, err := slurm.ParseRunningJob([]byte(fakeJob), "46")
	wardentest.NoError(t, err)
	plan := action.RequeuePlan{Job: job, MiB: 1250, Places: record.Places{Journals: []string{"/proc/nothing/here"}}}
	var out strings.Builder
	if err := plan.CarryOut(&out, slurm.Scontrol, slurm.RequeuePatience{}); err == nil || !strings.Contains(err.Error(), "cannot make the file") {
		t.Error(err)
	}
	if job := f.read(t, "job"); !strings.Contains(job, "MinMemoryNode=1250M") || strings.Contains(job, "held") || !strings.Contains(out.String(), `"Requeued":true`) {
		t.Errorf("the job stands as %s\n%s", job, out.String())
	}
}

// TestSecondAttempt: what the first left behind is reported once, by one task.
func TestSecondAttempt(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"as it was meant", map[string]string{"SLURM_RESTART_COUNT": "1", "SLURM_MEM_PER_NODE": "1250"},
			"second attempt of job 46: the first was requeued at 12:00:00 by 97%:requeue, it was full; it had 1000 MiB and this one has 1250"},
		{"with less", map[string]string{"SLURM_RESTART_COUNT": "2", "SLURM_MEM_PER_NODE": "1000"},
			"third attempt of job 46: the first was requeued at 12:00:00 by 97%:requeue, it was full; it had 1000 MiB and was to have 1250, this one has 1000"},
		{"the first", map[string]string{"SLURM_MEM_PER_NODE": "1000"}, ""},
		{"another task", map[string]string{"SLURM_RESTART_COUNT": "1", "SLURM_PROCID": "3"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			now := time.Now()
			places := record.Places{Journals: []string{filepath.Join(dir, ".rsswarden")}}
			f, err := record.OpenRequeueLog(places, "46")
			wardentest.NoError(t, err)
			for _, step := range []string{record.RequeueBegun, slurm.StepHold, slurm.StepUpdate, slurm.StepRelease} {
				l := record.RequeueEntry{Time: time.Date(now.Year(), now.Month(), now.Day(), 12, 0, 0, 0, time.Local), Job: "46", Rule: "97%:requeue", Because: "it was full", FromMiB: 1000, ToMiB: 1250, Step: step, OK: true}
				wardentest.NoError(t, l.Write(f))
			}
			f.Close()
			c.env["SLURM_SUBMIT_DIR"] = dir
			s := inJob46(t, c.env)
			find := s.acts.LastAttempt()
			if (find == nil) != (c.want == "") {
				t.Fatalf("to be told: %v", find != nil)
			}
			if find != nil && find() != c.want {
				t.Errorf("said %q, want %q", find(), c.want)
			}
		})
	}
}
