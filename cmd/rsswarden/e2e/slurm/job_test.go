// Package slurm runs jobs of a real Slurm.
package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for.
var binary, faulty string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty, wardentest.Daemon: new(string)}, slurmtest.Shutdown))
}

// cluster is one that tests may share, with rsswarden installed for its jobs.
func cluster(t *testing.T, mode slurmtest.Mode) (c *slurmtest.Cluster, warden string) {
	t.Helper()
	c = slurmtest.Start(t, mode, slurmtest.Usual)
	return c, c.Install(t, binary)
}

func TestSlurmCgroupQuiet(t *testing.T) {
	c, warden := cluster(t, slurmtest.Cgroup)
	for name, job := range map[string]string{
		"page cache": fmt.Sprintf("%s %s $PWD/cache", python, c.Install(t, "testdata/jobs/cache.py")),
		"ramp":       fmt.Sprintf("%s %s", python, c.Install(t, "testdata/jobs/ramp.py")),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(c.Dir(), "events-"+name[:4])
			got := c.Submit(t, fmt.Sprintf("exec %s run --events %s -- %s", warden, path, job), "--mem=300", "--no-requeue").Wait(t)
			if got.State != "COMPLETED" || got.ExitCode != 0 {
				t.Errorf("%s %d:%d, want COMPLETED 0:0\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
			}
			said := wardentest.Events(t, path)
			if len(said[event.NameDecision]) > 0 || len(said[event.NameOutcome]) > 0 {
				t.Errorf("decided on something: %v %v", said[event.NameDecision], said[event.NameOutcome])
			}
			exit := said[event.NameExit][0]
			binding := exit["binding"].(map[string]any)
			t.Logf("outcome %v, %v at %v of %v, charged %v", exit["outcome"], binding["limit"],
				binding["used_bytes"], binding["limit_bytes"], binding["charged_bytes"])
			if exit["outcome"] != "ok" || binding["limit"] != "cgroup" {
				t.Errorf("outcome %v on %v, want ok on cgroup", exit["outcome"], binding["limit"])
			}
		})
	}
}

// TestSlurmOrphan: a subreaper would bring the orphan back under the task, and
// slurmstepd would kill a job that survives bare.
// TestManyRanks: the ranks of a step that has 25 MiB for each are not killed for what rsswarden
// takes beside them.
func TestManyRanks(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Usual)
	warden := c.Install(t, wardentest.Program(t, wardentest.Static))
	counted := func(command string) (median rss.Bytes) {
		run := c.Submit(t, "srun -N1 -n8 --mem=200 "+command, "-n8", "--mem=400")
		if got := run.Wait(t); got.State != "COMPLETED" || got.Stderr != "" {
			t.Errorf("%s: %s\n%s", command, got.State, got.Stderr)
		}
		var all []rss.Bytes
		for _, m := range regexp.MustCompile(`StepId=`+run.ID+`\.0 memory used:(\d+)`).FindAllStringSubmatch(run.Log(), -1) {
			n, _ := strconv.ParseUint(m[1], 10, 64)
			all = append(all, rss.Bytes(n))
		}
		if len(all) == 0 {
			t.Fatalf("%s was not counted", command)
		}
		slices.Sort(all)
		t.Logf("%s: counted %v, %v at most", command, all[len(all)/2], all[len(all)-1])
		return all[len(all)/2]
	}
	bare, with := counted("sleep 6"), counted(warden+" run --quiet -- sleep 16") // half of it at rest, where a start is slow too
	if with.Sub(bare) > 25e6 {
		t.Errorf("slurmstepd counts %v bare and %v wrapped, want at most 25 MB more", bare, with)
	}
}

func TestSlurmOrphan(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := python + " " + c.Install(t, "testdata/jobs/orphan.py")
	for _, wrap := range []string{"", warden + " run --"} {
		got := c.Submit(t, "exec "+wrap+" "+job, "--mem=400").Wait(t)
		if got.State != "COMPLETED" || got.ExitCode != 0 || got.Stdout != "parent ends\n" {
			t.Errorf("%q: %s %s %d:%d, stdout %q\n%s", wrap, got.State, got.Reason, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
		}
	}
}

// TestSlurmWithoutExec: under a batch shell that waits, Slurm's signals do not
// arrive, and the first lines say so.
func TestSlurmWithoutExec(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	const warning = "write exec rsswarden run -- COMMAND as its last line"
	got := c.Submit(t, warden+" run -- sleep 1\nexit 0", "--mem=400").Wait(t)
	wardentest.Says(t, got.Stderr, warning)
	got = c.Submit(t, "exec "+warden+" run -- sleep 1", "--mem=400").Wait(t)
	if strings.Contains(got.Stderr, warning) {
		t.Errorf("a warning with exec:\n%s", got.Stderr)
	}
	if out := c.Srun(t, "--mem=400", warden, "run", "--", "sleep", "1"); out.Code != 0 || strings.Contains(out.Stderr, warning) {
		t.Errorf("srun: status %d\n%s", out.Code, out.Stderr)
	}
}

// TestSlurmSignals: whatever way Slurm sends a signal, the command has it
// exactly once, as bare.
func TestSlurmSignals(t *testing.T) {
	c, warden := cluster(t, slurmtest.Linux)
	job := python + " " + c.Install(t, "testdata/jobs/count.py")
	for name, wrap := range map[string]string{"bare": "", "wrapped": warden + " run --"} {
		t.Run(name, func(t *testing.T) {
			run := c.Submit(t, "exec "+wrap+" "+job, "--mem=400")
			seen := func(text string) func(slurmtest.Result) bool {
				return func(r slurmtest.Result) bool { return r.Over() || strings.Contains(r.Stdout, text) }
			}
			run.Until(t, rsstest.Patience, seen("ready"))
			// -b reaches the batch process alone, -f its whole process group.
			c.Cancel(t, "-b", "-s", "USR1", run.ID)
			run.Until(t, rsstest.Patience, seen("got 10"))
			c.Cancel(t, "-f", "-s", "USR2", run.ID)
			run.Until(t, rsstest.Patience, seen("got 12"))
			c.Cancel(t, "-b", "-s", "TERM", run.ID)
			got := run.Wait(t)
			if want := "ready\ngot 10\ngot 12\ngot 15\n"; got.Stdout != want {
				t.Errorf("%s, stdout %q, want %q\n%s", got.State, got.Stdout, want, got.Stderr)
			}
		})
	}
}

// TestSlurmTerminal uses a shell of srun --pty as a person does: ^C, ^Z, jobs
// and fg work as without us.
func TestSlurmTerminal(t *testing.T) {
	c, warden := cluster(t, slurmtest.Linux)
	cmd := c.Command(t.Context(), "srun", "--mem=400", "--pty", warden, "run", "--quiet", "--", "bash", "--norc", "--noprofile", "-i")
	f, err := pty.Start(cmd)
	wardentest.NoError(t, err)
	defer f.Close()
	var shown wardentest.Text
	go io.Copy(&shown, f) // ends with the terminal
	typed := func(text string) {
		t.Helper()
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatalf("%v\n%s", err, shown.String())
		}
	}
	typed("PS1='> '; echo up-$((40+2))\n")
	shown.Await(t, "up-42", 1)
	typed("sleep 1000; echo status-$((0+$?))\n")
	awaitProcess(t, "sleep\x001000\x00")
	typed("\x03")
	typed("echo after-$((1+1))\n")
	shown.Await(t, "after-2", 1)
	typed("sleep 1001\n")
	awaitProcess(t, "sleep\x001001\x00")
	typed("\x1a")
	shown.Await(t, "Stopped", 1)
	typed("jobs; echo jobs-$((1+2))\n")
	shown.Await(t, "jobs-3", 1)
	if strings.Count(shown.String(), "Stopped") < 2 {
		t.Errorf("jobs does not list the stopped job:\n%s", &shown)
	}
	typed("fg\n")
	shown.Await(t, "sleep 1001", 4) // typed, stopped, listed, and now in front again
	typed("\x03")
	typed("exit 5\n")
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("srun ended with %d (%v), want the shell's 5\n%s", code, err, &shown)
	}
}

// awaitProcess waits until a process with that command line runs.
func awaitProcess(t *testing.T, line string) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("a process %q", line), func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		wardentest.NoError(t, err)
		return slices.ContainsFunc(files, func(file string) bool { return wardentest.Read(file) == line })
	})
}

// holdUntil holds as many MiB as its first argument says until there is a file of the name
// of its second.
const holdUntil = `import os, sys, time; held = bytearray(int(sys.argv[1]) << 20)
while not os.path.exists(sys.argv[2]): time.sleep(0.05)`

// commented is a job of [TestSlurmCommentAndTextfile].
type commented struct {
	*slurmtest.JobRun
	t     *testing.T
	c     *slurmtest.Cluster
	shown string // by which scontrol and squeue know it
	own   string // what the user wrote into its comment
}

// comment is what stands there, as both print it.
func (j *commented) comment() string {
	j.t.Helper()
	out := j.c.Do(j.t, "scontrol", "show", "job", j.shown)
	if out.Code != 0 {
		j.t.Fatal(out)
	}
	comment := ""
	for line := range strings.Lines(out.Stdout) {
		if text, ok := strings.CutPrefix(line, "   Comment="); ok {
			comment = strings.TrimSpace(text)
		}
	}
	return comment
}

// release makes a file that ranks wait for.
func (j *commented) release(file string) {
	j.t.Helper()
	if out := j.c.Do(j.t, "touch", filepath.Join(j.Dir, file)); out.Code != 0 {
		j.t.Fatal(out)
	}
}

// TestSlurmCommentAndTextfile: in jobs of a real Slurm that are near their limit the
// job's comment says so, behind the user's own, and how the job ended; of an array the
// task that it is about has it, and no other; one that is too long stays as it is. The
// textfile tells of job, step, node and limit, and is gone when the job has ended.
func TestSlurmCommentAndTextfile(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	texts, err := os.MkdirTemp(c.Dir(), "texts")
	wardentest.NoError(t, err)
	wardentest.NoError(t, os.Chmod(texts, 0o777|os.ModeSticky))
	run := func(mib, file string) string {
		return fmt.Sprintf("%s run --alert-comment --textfile %s --record none --at none --at 80%%:warn -- %s -c '%s' %s %s", warden, texts, python, holdUntil, mib, file)
	}
	submit := func(own, script string, args ...string) *commented {
		if own != "" {
			args = append(args, "--comment="+own)
		}
		j := &commented{t: t, c: c, own: own, JobRun: c.Submit(t, script, append(args, "--mem=200")...)}
		j.shown = j.ID
		return j
	}
	batch := submit("for paper 3", "exec "+run("160", "go"))
	ranks := submit("", "srun -n2 --overlap --mem=0 "+run("85", "go"), "-n2")
	long := submit(strings.Repeat("long ", 120), "exec "+run("160", "go"))
	// Both tasks wait for each other's end: the last has the number of the array.
	array := submit("sweep", `held=10; [ $SLURM_ARRAY_TASK_ID = 4 ] && held=160
exec `+run("$held", "go$SLURM_ARRAY_TASK_ID"), "--array=3,4")
	near, other := *array, *array
	near.shown, other.shown = array.ID+"_4", array.ID+"_3"

	warned := func(own string) *regexp.Regexp {
		return regexp.MustCompile("^" + own + `rsswarden: memory [89][0-9] % of 200 MiB on ` + c.Node() + ` at \d\d:\d\d:\d\d$`)
	}
	ended := func(own string) *regexp.Regexp {
		return regexp.MustCompile("^" + own + `rsswarden: ended, tight; at most [89][0-9] % of 200 MiB on ` + c.Node() + `; next time --mem=\d+M$`)
	}
	for j, want := range map[*commented]*regexp.Regexp{batch: warned("for paper 3; "), ranks: warned(""), &near: warned("sweep; ")} {
		got := ""
		wardentest.Until(t, fmt.Sprintf("in the comment of %s: %v", j.shown, want), func() bool {
			got = j.comment()
			return want.MatchString(got)
		})
		if out := c.Do(t, "squeue", "-h", "-j", j.shown, "-o", "%k"); strings.TrimSpace(out.Stdout) != got {
			t.Errorf("squeue shows %q, scontrol %q", out.Stdout, got)
		}
	}

	for j, step := range map[*commented]string{batch: "batch", ranks: "0"} {
		var names []string
		wardentest.Until(t, "a textfile of job "+j.ID, func() bool {
			names, _ = filepath.Glob(fmt.Sprintf("%s/rsswarden_%s_%s_%s_*.prom", texts, j.ID, step, c.Node()))
			return len(names) == 1
		})
		job := fmt.Sprintf(`\{jobid="%s",node="%s",run="[0-9a-z]{8}"`, j.ID, c.Node())
		at := fmt.Sprintf(`\{jobid="%s",step="%s",node="%s",run="[0-9a-z]{8}"`, j.ID, step, c.Node())
		n := map[*commented]int{batch: 1, ranks: 2}[j]
		for _, want := range []string{
			`rsswarden_job_limit_ratio` + job + `,limit="cgroup"\} 0\.[89][0-9]*`,
			`rsswarden_job_memory_limit_bytes` + job + `,limit="cgroup"\} 209715200`,
			`rsswarden_oom_kills_total` + at + `\} 0`,
			fmt.Sprintf(`rsswarden_ranks%s\} %d`, at, n),
			`rsswarden_actions_total` + at + `,action="warn",outcome="done"\} [1-9]`,
		} {
			re := regexp.MustCompile("(?m)^" + want + "$")
			// The numbers of the ranks are written again every 15 s.
			wardentest.Until(t, want+" in the textfile of job "+j.ID, func() bool { return re.MatchString(wardentest.Read(names[0])) })
		}
	}
	if got := other.comment(); got != "sweep" {
		t.Errorf("the comment of %s, which is near nothing, is %q", other.shown, got)
	}

	for _, j := range []*commented{batch, ranks, long} {
		j.release("go")
	}
	array.release("go4")
	wardentest.Until(t, "the end of the task", func() bool { return ended("sweep; ").MatchString(near.comment()) })
	if got := other.comment(); got != "sweep" {
		t.Errorf("when %s has ended the comment of %s is %q", near.shown, other.shown, got)
	}
	array.release("go3")
	for _, j := range []*commented{batch, ranks, long} {
		if r := j.Wait(t); r.State != "COMPLETED" {
			t.Errorf("%s\n%s", r.State, r.Stderr)
		}
	}
	wardentest.Until(t, "the end of the other task", func() bool {
		return regexp.MustCompile(`^sweep; rsswarden: ended, ok`).MatchString(other.comment())
	})
	// Who led may have ended before the other.
	eitherEnded := regexp.MustCompile(strings.Replace(ended("").String(), "ended", "(rank [01] )?ended", 1))
	for j, want := range map[*commented]*regexp.Regexp{batch: ended("for paper 3; "), ranks: eitherEnded} {
		if got := j.comment(); !want.MatchString(got) {
			t.Errorf("at the end the comment of %s is %q, want %v", j.ID, got, want)
		}
	}
	if got := long.comment(); got != strings.TrimSpace(long.own) {
		t.Errorf("a long comment has become %q", got)
	}
	if r, err := long.Now(t.Context()); err != nil || !strings.Contains(r.Stderr, "the job's own comment is too long to be kept beside ours") {
		t.Errorf("%v, and it said: %s", err, r.Stderr)
	}
	wardentest.Until(t, "no textfile", func() bool { left, err := os.ReadDir(texts); return err == nil && len(left) <= 1 }) // how many runs have ended stays
}

// TestDoctorSlurm: in a batch job the limit of the step is found, and whether
// Slurm's signals arrive depends on exec, here or further down in the script.
func TestDoctorSlurm(t *testing.T) {
	t.Parallel()
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == slurmtest.Linux {
				wardentest.Long(t)
			}
			t.Parallel()
			doctorIn(t, mode)
		})
	}
}

func doctorIn(t *testing.T, mode slurmtest.Mode) {
	c := slurmtest.Start(t, mode, slurmtest.Usual)
	program := c.Install(t, binary)
	ask := program + " doctor --json --timeout 2m -- " + python
	later := filepath.Dir(program) + "/rsswarden run -- true"
	for _, test := range []struct {
		name, script string
		signals      doctor.Status
		source       string
	}{
		{"under the shell", ask + "\nexit $?", doctor.Limited, ""},
		{"exec", "exec " + ask, doctor.OK, ""},
		{"exec further down", ask + "\nstatus=$?\nif false; then\nexec " + later + "\nfi\nexit $status", doctor.OK, "slurm_script"},
		{"srun", "srun " + ask, doctor.OK, ""},
	} {
		got := c.Submit(t, test.script, "--mem=2500").Wait(t)
		r, of := e2etest.Examined(t, got.Stdout)
		if got.ExitCode != 0 || !r.Protects {
			t.Errorf("%s: status %d, %v\n%s%s", test.name, got.ExitCode, r.Why, got.Stdout, got.Stderr)
		}
		if s := of(doctor.NameSignals); s.Status != test.signals || test.source != "" && filepath.Base(s.Source) != test.source {
			t.Errorf("%s: %+v", test.name, s)
		}
		for _, name := range []string{doctor.NameRun, doctor.NameLimit, doctor.NameTree, doctor.NameSlurm, doctor.NameAccounting, doctor.NameRelease} {
			if s := of(name); s.Status != doctor.OK {
				t.Errorf("%s: %+v", test.name, s)
			}
		}
		t.Logf("%s: %v; %+v", test.name, r.Why, of(doctor.NameAccounting))
	}
	// torch alone would be more than is left of so little.
	got := c.Submit(t, "exec "+program+" doctor --json --timeout 2m -- "+python, "--mem=300").Wait(t)
	r, of := e2etest.Examined(t, got.Stdout)
	if s := of(doctor.NamePython); got.State != "FAILED" || got.ExitCode != 1 || r.Protects || s.Status != doctor.Limited {
		t.Errorf("%s %d, %+v", got.State, got.ExitCode, s)
	}
}

// TestReadmeJob submits the README's own batch script.
func TestReadmeJob(t *testing.T) {
	t.Parallel()
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Usual)
	bin := filepath.Dir(c.Install(t, binary))
	run := c.Submit(t, rsstest.Block(t, "## My job died last night"), "--export=ALL,PATH="+bin+":/usr/bin:/bin", "--chdir="+readmeFolder(t, c, bin))
	if got := run.Wait(t); got.State != "COMPLETED" || got.Stdout != "trained\n" {
		t.Errorf("%s, stdout %q\n%s", got.State, got.Stdout, got.Stderr)
	}
}

// readmeFolder is a folder with a train.py, and a python beside the program.
func readmeFolder(t *testing.T, c *slurmtest.Cluster, bin string) string {
	t.Helper()
	dir := filepath.Join(c.Dir(), "readme")
	wardentest.NoError(t, os.Mkdir(dir, 0o755))
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte("print('trained')\n"), 0o644))
	wardentest.NoError(t, os.Symlink(python, filepath.Join(bin, "python")))
	return dir
}

var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

var bars = regexp.MustCompile(`[█▏▎▍▌▋▊▉░]+`)

// shape leaves of a line what does not differ from run to run: no numbers, and
// nothing behind the first parenthesis.
func shape(line string) string {
	line, _, _ = strings.Cut(line, "(")
	line = strings.TrimSpace(bars.ReplaceAllString(line, ""))
	if front, _, found := strings.Cut(line, " watching "); found {
		line = front + " watching"
	}
	return digits.ReplaceAllString(line, "#")
}

// sampleShown wants the lines of a README block among those of a real run.
func sampleShown(t *testing.T, words, stderr string) {
	t.Helper()
	real := map[string]bool{}
	for line := range strings.Lines(wardentest.Said(stderr)) {
		real[shape(line)] = true
	}
	for line := range strings.Lines(rsstest.Block(t, words)) {
		if !real[shape(line)] {
			t.Errorf("the README shows\n%s\nno line like it in\n%s", line, wardentest.Said(stderr))
		}
	}
}

// attached is an attach that runs.
type attached struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	events         string
}

// attach starts an attach, by way of a command in front of it.
func attach(t *testing.T, c *slurmtest.Cluster, warden string, before, args []string) *attached {
	t.Helper()
	a := &attached{events: filepath.Join(c.Dir(), fmt.Sprintf("attach-%d.jsonl", time.Now().UnixNano()))}
	line := append(append(before, warden, "attach", "--events", a.events), args...)
	a.cmd = c.Command(t.Context(), line[0], line[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	wardentest.NoError(t, a.cmd.Start())
	return a
}

// wait waits for the end of the attach, which must be a good one.
func (a *attached) wait(t *testing.T) map[event.Name][]map[string]any {
	t.Helper()
	if err := a.cmd.Wait(); err != nil {
		t.Fatalf("attach: %v\n%s", err, &a.stderr)
	}
	t.Logf("%s", &a.stderr)
	return wardentest.Events(t, a.events)
}

// TestAttachSlurmLinux: slurmstepd sums the RSS of a step that srun started in
// a batch job. Attached from outside the job, and with another job's
// environment around it.
func TestAttachSlurmLinux(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := "/usr/bin/python3 " + c.Install(t, "testdata/jobs/grow.py")
	other := []string{"env", "SLURM_JOB_ID=999", "SLURM_STEP_ID=7", "SLURM_MEM_PER_NODE=100", "SLURM_JOB_END_TIME=1"}

	run := c.Submit(t, "srun "+job+" 115", "--mem=300", "-n2")
	run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool { return r.Over() || strings.Count(r.Stdout, "\n") == 2 })
	a := attach(t, c, warden, other, []string{"--at", "75%:signal=USR1", "--job", run.ID})
	all := a.wait(t)
	got := run.Wait(t)
	if got.State != "COMPLETED" || strings.Count(got.Stdout, "asked to end") != 2 {
		t.Errorf("%s, stdout %q, stderr %s", got.State, got.Stdout, got.Stderr)
	}
	start := all[event.NameStart][0]
	wardentest.Has(t, start, "attached", true, "job", run.ID)
	step := wardentest.Reading(t, all, event.LimitSlurm, run.ID+".0")
	if step["limit_bytes"] != float64(300<<20) || step["accounting"] != "rss" || step["scope"] != "step" ||
		!strings.HasPrefix(step["enforcer"].(string), "slurmstepd") || step["used_bytes"].(float64) < 220<<20 || step["used_bytes"].(float64) > 300<<20 {
		t.Errorf("of step 0: %v", step)
	}
	batch := wardentest.Reading(t, all, event.LimitSlurm, run.ID+".batch")
	if used := batch["used_bytes"].(float64); used > 60<<20 || used == 0 {
		t.Errorf("of the batch step, which is a shell and srun: %v", batch)
	}
	wardentest.Says(t, a.stderr.String(),
		"watching job "+run.ID+" here: steps 0 and batch, ",
		"slurm, Slurm kills at summed RSS", "slurm step "+run.ID+".0 ", "of 300 MiB",
		": USR1 sent to processes ", "job "+run.ID+" has no process left on this node", "attached: ",
	)
	wardentest.Has(t, all[event.NameExit][0], "by", "command", "code", nil, "signal", nil)
}

// TestAttachSlurmCgroup: the kernel kills at the job's cgroup. Attached to the
// process and to the job, from outside and from a step within the job.
func TestAttachSlurmCgroup(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	job := "/usr/bin/python3 " + c.Install(t, "testdata/jobs/grow.py")
	for name, how := range map[string]struct {
		before []string
		what   []string
	}{
		"process":           {nil, []string{"PID"}},
		"job":               {nil, []string{"--job", "ID"}},
		"step":              {nil, []string{"--job", "ID.batch"}},
		"job, from a step":  {wardentest.Beside(t), []string{"--job", "ID"}},
		"process from step": {wardentest.Beside(t), []string{"PID"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := c.Submit(t, "exec "+job+" 250", "--mem=300", "--no-requeue")
			r := run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool { return r.Over() || strings.HasSuffix(r.Stdout, "\n") })
			fill := strings.NewReplacer("NODE", c.Node(), "ID", run.ID, "PID", strings.TrimSpace(r.Stdout))
			before, what := []string{}, []string{"--at", "75%:signal=USR1"}
			for _, s := range how.before {
				before = append(before, fill.Replace(s))
			}
			for _, s := range how.what {
				if s == "PID" {
					s = strings.TrimSpace(r.Stdout)
				}
				what = append(what, fill.Replace(s))
			}
			a := attach(t, c, warden, before, what)
			all := a.wait(t)
			if got := run.Wait(t); got.State != "COMPLETED" || !strings.Contains(got.Stdout, "asked to end") {
				t.Errorf("%s, stdout %q, stderr %s", got.State, got.Stdout, got.Stderr)
			}
			l := wardentest.Reading(t, all, event.LimitCgroup, "job_"+run.ID)
			if l["limit_bytes"] != float64(300<<20) || l["enforcer"] != "kernel OOM killer" || l["scope"] != "job" || l["used_bytes"].(float64) < 220<<20 {
				t.Errorf("the job's: %v", l)
			}
		})
	}
}

// TestAttachSlurmOnce: typed in a batch script, whose environment tells srun of
// several tasks, the command of the hint starts one attach; it does not count
// what it starts itself.
func TestAttachSlurmOnce(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	command := strings.NewReplacer("NODE", c.Node(), "ID", "$SLURM_JOB_ID").Replace(strings.Join(wardentest.Beside(t), " "))
	run := c.Submit(t, command+" "+warden+" attach --at none --at 'slurm 1%:exec=sleep 3' --job $SLURM_JOB_ID &\nsrun --overlap --mem=0 -N1 -n1 sleep 6", "--mem=300", "-n3", "--ntasks-per-node=3")
	got := run.Wait(t)
	if n := strings.Count(got.Stderr, " watching job "+run.ID); got.State != "COMPLETED" || n != 1 {
		t.Errorf("%s, %d attaches\n%s", got.State, n, got.Stderr)
	}
}

// TestTrimSlurm: typed in a job's script and in a step beside it, it finds the
// job's processes and no others.
func TestTrimSlurm(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	for name, how := range map[string]string{
		"script": warden,
		"step":   "srun --overlap --mem=0 -N1 -n1 " + warden,
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(c.Dir(), "trim-"+name)
			other := wardentest.StartMapper(t, wardentest.MapFile(t), "futex", nil)
			had := other.Resident()
			run := c.Submit(t, fmt.Sprintf(`dd if=/dev/urandom of=%[1]s bs=1M count=64 status=none && sync %[1]s
mkfifo %[1]s.in %[1]s.out
%[2]s %[3]s %[1]s futex < %[1]s.in > %[1]s.out &
exec 3> %[1]s.in 4< %[1]s.out
read -r before <&4
%[4]s trim --drop --json || exit 1
echo >&3
read -r after <&4
exec 3>&-
wait $!
[ "$before" = "$after" ]`, data, python, c.Install(t, wardentest.Path(t, "supervisor/wardentest/testdata/map.py")), how), "--mem=300")
			r := run.Wait(t)
			var got wardentest.Trimming
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.State != "COMPLETED" {
				t.Fatalf("%v, %s, stdout %q\n%s", err, r.State, r.Stdout, r.Stderr)
			}
			freed, pythons := 0, 0
			for _, p := range got.Processes {
				if p.Freed != nil {
					freed += *p.Freed
				}
				if p.Comm == "python3" {
					pythons++
				}
			}
			if freed < wardentest.MappedBytes-1<<20 || pythons != 1 || len(got.Dropped) != 1 || got.Dropped[0].After == nil || *got.Dropped[0].After > 1<<20 {
				t.Errorf("%s", r.Stdout)
			}
			if now := other.Resident(); now < had-1<<20 {
				t.Errorf("RssFile of one outside of the job fell from %d to %d", had, now)
			}
		})
	}
}
