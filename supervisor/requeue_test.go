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
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// fakeScontrol plays Slurm for job 46: the line that describes it is in a file, and
// so is each call. A file fail-NAME has a command do nothing and complain, with
// status 0 as scontrol does; wait-NAME has it wait until that is removed, kill-NAME
// kills who runs it, once.
const fakeScontrol = `#!/bin/sh
cd "$FAKE_SLURM" || exit 9
echo "$*" >>calls
while [ -e "wait-$1" ]; do sleep 0.01; done
if [ -e "kill-$1" ]; then rm "kill-$1"; kill -KILL $PPID; exit 1; fi
if [ -e "fail-$1" ]; then cat "fail-$1" >&2; exit 0; fi
case "$1 $2" in
"show job") cat job ;;
"show node") echo "NodeName=n1 RealMemory=8000 MemSpecLimit=0" ;;
"show partition") echo "PartitionName=debug MaxMemPerNode=UNLIMITED" ;;
"show config") printf 'JobAcctGatherType       = jobacct_gather/linux\nKillWait                = 7 sec\n' ;;
"requeuehold 46")
	grep -q JobState=RUNNING job || { echo "Job is pending execution for job 46" >&2; exit 0; }
	sed -i 's/JobState=RUNNING Reason=None/JobState=COMPLETING Reason=job_requeued_in_held_state/' job ;;
"update JobId=46") sed -i "s/MinMemoryNode=[0-9]*M/$3M/" job ;;
"release 46") sed -i 's/Reason=[^ ]*/Reason=None/' job ;;
*) echo "what is $*?" >&2; exit 1 ;;
esac
`

const fakeJob = "JobId=46 JobName=x UserId=u(1000) GroupId=g(1000) JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1 Partition=debug NodeList=n1 NumNodes=1 NumCPUs=2 MinMemoryNode=1000M\n"

// fakeSlurm is where the fake keeps its files.
type fakeSlurm string

func newFakeSlurm(t *testing.T) fakeSlurm {
	t.Helper()
	dir := rsstest.BusyDir(t)
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "scontrol"), []byte(fakeScontrol), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("FAKE_SLURM", dir)
	f := fakeSlurm(dir)
	f.write(t, "job", fakeJob)
	return f
}

func (f fakeSlurm) write(t *testing.T, name, text string) {
	t.Helper()
	wardentest.NoError(t, os.WriteFile(filepath.Join(string(f), name), []byte(text), 0o600))
}

func (f fakeSlurm) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(string(f), name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// calls are the commands that change something.
func (f fakeSlurm) calls(t *testing.T) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(f.read(t, "calls")), "\n"), func(c string) bool {
		return c == "" || strings.HasPrefix(c, "show ")
	})
}

// inJob46 is a stand in job 46, in a batch step that slurmstepd started, with a
// --limit that is a share of its memory.
func inJob46(t *testing.T, env map[string]string, changes ...func(*Options)) *stand {
	t.Helper()
	dir := rsstest.BusyDir(t)
	vars := map[string]string{
		"SLURM_JOB_ID": "46", "SLURM_TASK_PID": "1", "SLURM_CLUSTER_NAME": "lab", "SLURMD_NODENAME": "n1",
		"SLURM_SUBMIT_DIR": dir, "SLURM_JOB_END_TIME": "9999999999",
	}
	for k, v := range env {
		vars[k] = v
	}
	s := newStand(t, append([]func(*Options){with(vars), func(o *Options) {
		o.Settings.Rules, o.Settings.MaxRequeues, o.Settings.CheckpointTimeout = mustRules("97%:requeue"), 3, time.Minute
	}}, changes...)...)
	const stepd = theHolder - 1
	s.fs.Put(rsstest.Process{PID: stepd, Parent: 1, Start: 1, Comm: "slurmstepd"})
	s.fs.Put(rsstest.Process{PID: theHolder, Parent: stepd, Start: 2, Comm: "rsswarden"})
	s.open(s.holder.begin)
	s.Settings.LimitShare = 1 // as if it had been found by a share
	return s
}

// looksUntil has the watcher look until a condition holds.
func (s *stand) looksUntil(what string, is func() bool) {
	s.t.Helper()
	wardentest.Until(s.t, what, func() bool {
		if is() {
			return true
		}
		s.full()
		return false
	})
}

func (s *stand) submitDir() string { dir, _ := s.Lookup("SLURM_SUBMIT_DIR"); return dir }

// batchShell puts a shell between slurmstepd and the holder.
func (s *stand) batchShell(ignored, caught string) {
	const shell = theHolder - 2
	s.fs.Put(rsstest.Process{PID: shell, Parent: theHolder - 1, Start: 2, Comm: "slurm_script"})
	s.fs.Put(rsstest.Process{PID: theHolder, Parent: shell, Start: 3, Comm: "rsswarden"})
	name := filepath.Join("proc", itoa(shell), "status")
	s.fs.Write(name, s.fs.Read(name)+"SigIgn:\t"+ignored+"\nSigCgt:\t"+caught+"\n")
}

func TestCanRequeue(t *testing.T) {
	job := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(fakeJob) }
	for _, c := range []struct {
		name, rule string
		env        map[string]string
		job        string
		set        func(*stand)
		reason     event.Reason // empty where it can
		detail     string
	}{
		{"as it is", "97%:requeue", nil, fakeJob, nil, "", ""},
		{"outside Slurm", "97%:requeue", map[string]string{"SLURM_JOB_ID": ""}, fakeJob, nil, event.ReasonUnsupported, "not in a Slurm job"},
		{"attached", "97%:requeue", nil, fakeJob, func(s *stand) { s.acts.Able = attach.FromOutside("", nil) }, event.ReasonUnsupported, "only what rsswarden run"},
		{"--no-requeue", "97%:requeue", nil, job("Requeue=1", "Requeue=0"), nil, event.ReasonNoRequeue, "--no-requeue"},
		{"salloc", "97%:requeue", nil, job("BatchFlag=1", "BatchFlag=0"), nil, event.ReasonNoRequeue, "no batch script"},
		{"in the queue already", "97%:requeue", nil, job("RUNNING", "COMPLETING"), nil, event.ReasonNoRequeue, "it is COMPLETING"},
		{"often enough, by the environment", "97%:requeue", map[string]string{"SLURM_RESTART_COUNT": "3"}, fakeJob, nil, event.ReasonRequeues, "started again 3 times, and --max-requeues is 3"},
		{"often enough, by Slurm", "97%:requeue", nil, job("Restarts=0", "Restarts=4"), nil, event.ReasonRequeues, "started again 4 times"},
		{"less than now", "97%:requeue=500M", nil, fakeJob, nil, event.ReasonNoRequeue, "500 MiB is no more than the 1000 MiB that the job has"},
		{"all of the node", "97%:requeue", nil, job("1000M", "8000M"), nil, event.ReasonNoRequeue, "can get no more: 8000 MiB by RealMemory of node n1"},
		{"--mem=0", "97%:requeue", nil, job("1000M", "0"), nil, event.ReasonNoRequeue, "--mem=0"},
		{"advice", "97%:requeue=advice", nil, fakeJob, nil, "", ""},
		{"another limit", "97%:requeue", nil, fakeJob, func(s *stand) { s.Settings.LimitShare = 0 }, event.ReasonNoHelp, "does not raise this limit"},
		{"Slurm knows no such job", "97%:requeue", nil, "\n", nil, event.ReasonError, "cannot ask Slurm about job 46"},
		{"a batch script in between", "97%:requeue", nil, fakeJob, func(s *stand) { s.batchShell("0000000000000000", "0000000000010000") }, event.ReasonNoRequeue, "write `exec rsswarden run"},
		{"one that ignores TERM", "97%:requeue", nil, fakeJob, func(s *stand) { s.batchShell("0000000000004000", "0000000000010000") }, "", ""},
		{"one with a trap", "97%:requeue", nil, fakeJob, func(s *stand) { s.batchShell("0000000000000000", "0000000000014000") }, "", ""},
		{"no slurmstepd above", "97%:requeue", nil, fakeJob, func(s *stand) {
			s.fs.Put(rsstest.Process{PID: theHolder, Parent: 1, Start: 2, Comm: "rsswarden"})
		}, event.ReasonNoRequeue, "no slurmstepd found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSlurm(t)
			f.write(t, "job", c.job)
			s := inJob46(t, c.env)
			if c.set != nil {
				c.set(s)
			}
			s.full()
			r := mustRules(c.rule)[0]
			var h event.Feasibility
			wardentest.Until(t, "an answer of Slurm's", func() bool { h = s.acts.Can(r, s.user()); return !h.Later })
			if h.OK != (c.reason == "") || h.Reason != c.reason || !strings.Contains(h.Detail, c.detail) {
				t.Errorf("%+v, want %q, %q", h, c.reason, c.detail)
			}
			if got := f.calls(t); len(got) > 0 {
				t.Errorf("Slurm was asked for %q", got)
			}
		})
	}
}

// TestRequeues from the rung to the queue, with a process of its own.
func TestRequeues(t *testing.T) {
	held, update, release := "requeuehold 46", "update JobId=46 MinMemoryNode=1250 StartTime=now+17", "release 46"
	for _, c := range []struct {
		name   string
		fails  map[string]string
		calls  []string
		ok     bool
		detail string
		says   string // on stderr
		done   bool   // the job is in the queue
		memory string
	}{
		{"all is well", nil, []string{held, update, release}, true, "with 1250 MiB (was 1000); requeuehold ", "requeued with 1250 MiB (was 1000)", true, "MinMemoryNode=1250M Reason=None"},
		{"Slurm refuses", map[string]string{"requeuehold": "Requested operation is presently disabled for job 46"}, []string{held}, false,
			"scontrol requeuehold 46: Requested operation is presently disabled", "requeue failed: scontrol requeuehold 46: Requested", false, "MinMemoryNode=1000M Reason=None"},
		{"the size is refused", map[string]string{"update": "Memory required by task is not available"},
			[]string{held, update, "update JobId=46 MinMemoryNode=1250", release}, true, "as it was, with 1000 MiB: Slurm did not take the new size (", "requeued as it was", true, "MinMemoryNode=1000M Reason=None"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSlurm(t)
			for name, text := range c.fails {
				f.write(t, "fail-"+name, text+"\n")
			}
			s := inJob46(t, nil)
			s.put(theCommand, theHolder, 980*rss.MiB, 0)
			s.looksUntil("decision", func() bool { return s.acts.InFlight() != nil })
			s.looksUntil("outcome", func() bool { return s.acts.InFlight() == nil })
			var calls []string
			for _, call := range f.calls(t) {
				if !slices.Contains(calls, call) {
					calls = append(calls, call)
				}
			}
			if !slices.Equal(calls, c.calls) {
				t.Errorf("Slurm was asked for %q, want %q", calls, c.calls)
			}
			for _, field := range strings.Fields(c.memory) {
				if job := f.read(t, "job"); !strings.Contains(job, " "+field) {
					t.Errorf("no %s in %s", field, job)
				}
			}
			s.told(c.says)
			s.end(&hold.Exit{Signal: 15})
			last := s.last(event.NameOutcome)
			if wardentest.Has(t, last, "ok", c.ok, "freed_bytes", 0.0); !strings.Contains(last["detail"].(string), c.detail) {
				t.Errorf("outcome %v", last)
			}
			if (s.count(event.NameExit, "outcome", string(event.RunRequeued)) > 0) != c.done {
				t.Errorf("exit %v", s.last(event.NameExit))
			}
			lines := record.ReadRequeueLog(record.Places{Journals: []string{filepath.Join(s.submitDir(), ".rsswarden")}}, "46", "lab", time.Now())
			if past, ok := record.LastRequeue(lines, 1); ok != c.done || ok && past.Raised != (c.fails == nil) {
				t.Errorf("left behind %+v", lines)
			}
		})
	}
}

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
