package integrations_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var given = regexp.MustCompile(`mem_mb=(\d+)`)

// TestSnakemake runs Snakemake itself: a rule that is ended at its limit is tried again
// with what rsswarden advised.
func TestSnakemake(t *testing.T) {
	t.Parallel()
	wardentest.NeedPython(t)
	modules, err := exec.Command("../../.ci/snakemake").Output()
	if err != nil {
		t.Skipf("no Snakemake: %v", err)
	}
	p := newPlace(t, "snakemake/Snakefile", "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=", "XDG_CACHE_HOME="+p.file("cache"))
	const main = `import sys; sys.path.insert(0, sys.argv.pop(1)); from snakemake import main; main()`
	r := p.start(python, "-S", "-c", main, strings.TrimSpace(string(modules)), "--cores", "1", "--scheduler", "greedy")
	status, log := r.ends(), r.stderr.String()
	t.Logf("%s", log)
	if b, err := os.ReadFile(p.file("model-1")); status != 0 || string(b) != "model of 1\n" {
		t.Errorf("status %d, model %q, %v", status, b, err)
	}
	if n := strings.Count(log, "Trying to restart job"); n != 1 {
		t.Errorf("%d restarts", n)
	}
	tries := given.FindAllStringSubmatch(log, -1)
	advised := regexp.MustCompile(`(?s)stopped by rule .*next --limit (\d+)M`).FindStringSubmatch(log)
	if len(tries) != 2 || advised == nil || tries[0][1] != "300" || tries[1][1] != advised[1] {
		t.Errorf("it was given %v, advised was %v", tries, advised)
	}
}

// TestNextflow types the script of the process as Nextflow would, which itself is not to
// be had here: at the limit its status is the one that errorStrategy retries at, and
// with twice the memory it is 0.
func TestNextflow(t *testing.T) {
	t.Parallel()
	text := wardentest.ReadFile(t, "nextflow/train.nf")
	_, script, _ := strings.Cut(string(text), `"""`)
	script, _, _ = strings.Cut(script, `"""`)
	retried := regexp.MustCompile(`task\.exitStatus == (\d+) \?`).FindStringSubmatch(string(text))
	if script == "" || retried == nil {
		t.Fatalf("script %q, retried at %v", script, retried)
	}
	p := newPlace(t, "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=")
	for attempt, want := range []string{retried[1], "0"} {
		mega := fmt.Sprint(300 << attempt)
		typed := strings.NewReplacer("${task.memory.toMega()}", mega, "${seed}", "1").Replace(script)
		r := p.start("/bin/bash", "-ue", "-c", typed)
		if status := r.ends(); fmt.Sprint(status) != want {
			t.Errorf("with %s MB: status %d, want %s\n%s", mega, status, want, &r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "model")); err != nil {
		t.Error(err)
	}
}

// says waits until the command has printed so.
func (r *running) says(want string) {
	r.place.t.Helper()
	wardentest.Until(r.place.t, "printed: "+want, func() bool { return strings.Contains(r.out(), want) })
}

// out is what it has printed so far.
func (r *running) out() string { return wardentest.Read(r.place.file("out")) }

// task waits for the rsswarden that srun started below the command, and returns its PID.
func (r *running) task() (pid int) {
	r.place.t.Helper()
	wardentest.Until(r.place.t, "a rsswarden below the command", func() bool {
		below := wardentest.Descendants(r.Process.Pid)
		i := slices.IndexFunc(below, func(pid int) bool { return wardentest.Read(fmt.Sprintf("/proc/%d/comm", pid)) == "rsswarden\n" })
		if i >= 0 {
			pid = below[i]
		}
		return i >= 0
	})
	return pid
}

// TestSubmitit has a training put back into the queue twice as submitit does it: at the
// USR2 that Slurm sends to the task, which is rsswarden, and at the one that rsswarden
// sends at 93 %. Each reaches the training once and no other process, and TERM, which Slurm sends
// then, does not keep it from ending as it wants to.
func TestSubmitit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "submitit/launch.py", "submitit/learner.py", "testdata/srun", "testdata/scontrol")
	module, err := os.Getwd()
	wardentest.NoError(t, err)
	p.env = append(p.env, "PYTHONPATH="+module+"/testdata/submitit:"+p.dir)
	launch := func(args ...string) {
		t.Helper()
		if r := p.start(append([]string{python, "launch.py"}, args...)...); r.ends() != 0 {
			t.Fatalf("%s", &r.stderr)
		}
	}
	launch()
	wardentest.Says(t, wardentest.Read(p.file("log/submission.sh")), "srun --unbuffered rsswarden run --at 93%:signal=USR2 -- "+python+" -u -m submitit")
	base := append(p.env, "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_CONF=/nowhere")
	life := func(restart, limit string) *running {
		t.Helper()
		p.env = append(base, "SLURM_RESTART_COUNT="+restart, "RSSWARDEN_LIMIT="+limit, "RSSWARDEN_EVENTS=")
		return p.start("/bin/sh", "-c", "exec bash log/submission.sh >out 2>&1")
	}
	requeued := func(r *running) (step string) {
		t.Helper()
		status := r.ends()
		m := regexp.MustCompile(`(?s)step (\d+)\n(?:rsswarden: [^\n]*\n)*got SIGUSR2\n.*bypassed SIGTERM\n`).FindStringSubmatch(r.out())
		if status != 255 || m == nil || strings.Count(r.out(), "got SIGUSR2") != 1 {
			t.Fatalf("status %d\n%s", status, r.out())
		}
		return m[1]
	}

	first := life("0", "100G")
	first.says("step 3\n")
	task := first.task()
	wardentest.NoError(t, syscall.Kill(task, syscall.SIGUSR2)) // as slurmstepd, to the task alone
	at := requeued(first)

	second := life("1", "100G")
	second.says("from step " + at + "\n")
	if status := second.ends(); status != 0 || !strings.Contains(second.out(), "result 40\n") {
		t.Errorf("status %d\n%s", status, second.out())
	}

	launch("10") // leaks 10 MB a step
	third := life("0", "200M")
	requeued(third)
	wardentest.Says(t, third.out(), ": USR2 sent to process ")

	asked := wardentest.Read(p.file("scontrol.log"))
	if n := strings.Count(asked, "requeue 4711\n"); n != 2 || strings.Contains(asked, "requeuehold") {
		t.Errorf("scontrol was asked\n%s", asked)
	}
}

// image is a sandbox that Apptainer runs: the Debian 13 root, as it is to be seen where
// Apptainer is.
const image = "/mnt"

// TestApptainer: from a container whose environment is kept the loader hook says hello;
// from one in which something keeps it out rsswarden says what, and with the script
// here it does say hello.
func TestApptainer(t *testing.T) {
	t.Parallel()
	const numbers, leaveOut = "it is in a PID namespace of its own, where the hook does nothing", "leave out what makes that namespace"
	const dropped, passOn = "neither RSSWARDEN_DIR nor the hook's directory on PYTHONPATH is in its environment", "pass RSSWARDEN_DIR and PYTHONPATH on"
	for name, c := range map[string]struct {
		start string
		says  string // of what keeps it out; empty where nothing does
		cure  string // … with what to do
	}{
		"kept":          {start: "rsswarden run -- apptainer exec @image"},
		"cleaned":       {"rsswarden run -- apptainer exec --cleanenv @image", dropped, passOn},
		"all contained": {"rsswarden run -- apptainer exec --containall --bind @dir/work @image", numbers, leaveOut},
		"contained":     {"rsswarden run -- apptainer exec --contain --bind @dir/work @image", "it does not see @dir/rsswarden-", "(of Apptainer --bind)"},
		"both cured":    {start: "train.sh --cleanenv --contain --bind @dir/work @image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "apptainer/train.sh")
			wardentest.Write(t, p.file("work/loads.py"), string(wardentest.ReadFile(t, "testdata/loads.py")))
			words := strings.Fields(strings.NewReplacer("@dir", p.dir, "@image", image).Replace(c.start))
			r := p.start(p.asPlainUser(append(words, python, p.file("work/loads.py"), p.file("work/enough"), "bare")...)...)
			want := "event=loader what=hello"
			if c.says != "" {
				want = "event=loader what=unreached"
			}
			e := r.event(want)
			p.enough()
			if status := r.ends(); status != 7 || !strings.Contains(r.stdout.String(), "down") {
				t.Errorf("status %d, stdout %q", status, &r.stdout)
			}
			says := strings.ReplaceAll(c.says, "@dir", p.dir)
			if why, _ := e["reason"].(string); c.says != "" && !strings.Contains(why, says) {
				t.Errorf("the event says %q, want %q", why, says)
			}
			told := strings.Count(r.stderr.String(), "the hook does not reach process ")
			if c.says != "" && (told != 1 || !strings.Contains(r.stderr.String(), c.cure)) || c.says == "" && told != 0 {
				t.Errorf("stderr:\n%s", &r.stderr)
			}
			t.Logf("%s", &r.stderr)
		})
	}
}

// TestApptainerTrains: a training in a container gets the data that it gets without
// rsswarden, although by the hook its workers are trimmed and replaced, or, where PID
// numbers of its own keep the hook out, trimmed by ptrace from outside.
func TestApptainerTrains(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "../train/train.py", "../train/data.py")
	training := []string{image, python, "train.py", "--data", p.file("lmdb"), "--records", "2000", "--record-bytes", "65536",
		"--workers", "2", "--persistent", "--epochs", "2", "--step-ms", "10"}
	bare := p.start(p.asPlainUser(slices.Concat([]string{"apptainer", "exec"}, training)...)...)
	want := wardentest.Checksum(bare.trained(t))
	if want == "none" {
		t.Fatalf("%s", &bare.stdout)
	}
	for name, c := range map[string]struct {
		rules   []string
		options []string
		leak    string
		events  []string
	}{
		"kept": {rules: []string{"--at", "65%:trim", "--at", "72%:recycle"}, leak: "64", events: []string{"what=trimmed", "what=recycled"}},
		// A process that does not stop at once is left alone for half a minute: by that rule.
		"PID numbers": {rules: []string{"--at", "70%:trim", "--at", "75%:trim", "--at", "80%:trim", "--trim", "auto"}, options: []string{"--pid"}, leak: "0", events: []string{"what=trimmed by=ptrace"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "PID numbers" {
				wardentest.Long(t)
			}
			p := newPlace(t, "../train/train.py", "../train/data.py")
			r := p.start(p.asPlainUser(slices.Concat([]string{"rsswarden", "run", "--limit", "1200M", "--record", "none", "--at", "none"}, c.rules,
				[]string{"--", "apptainer", "exec"}, c.options, training, []string{"--leak-worker", c.leak})...)...)
			if got := wardentest.Checksum(r.trained(t)); got != want {
				t.Errorf("checksum %v, bare %v\n%s", got, want, &r.stderr)
			}
			t.Logf("%s", &r.stderr)
			for _, what := range c.events {
				n, freed := 0, 0.0
				for _, e := range p.events("event=loader " + what) {
					bytes, _ := e["freed_bytes"].(float64) // not there where it is 0
					n, freed = n+1, freed+bytes
				}
				t.Logf("%s: %d times, %.0f MiB given back", what, n, freed/(1<<20))
				if n == 0 || strings.Contains(what, "trimmed") && freed < 64<<20 {
					t.Errorf("%s: %d times, %.0f bytes given back", what, n, freed)
				}
			}
		})
	}
}

// trained waits for a training that ends well and returns what it printed.
func (r *running) trained(t *testing.T) string {
	t.Helper()
	if status := r.ends(); status != 0 {
		t.Fatalf("status %d\n%s%s", status, &r.stdout, &r.stderr)
	}
	return r.stdout.String()
}

// grows is a program without the hook: it takes 300 MB, and says when it got a signal.
const grows = `import signal, sys, time
if sys.argv[1] == "asked":
    signal.signal(signal.SIGUSR2, lambda number, frame: print("asked", flush=True))
held = []
for _ in range(30):
    held.append(b"\x55" * (10 << 20))
    time.sleep(0.1)
print("end", flush=True)
`

// TestApptainerSignal: a signal asks the program in a container, also where that is not
// known to train. Apptainer itself would pass it on to one that has no handler and dies.
func TestApptainerSignal(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"--cleanenv --pid", "--cleanenv"}[:wardentest.Few(2, 1)] {
		for argument, want := range map[string]string{"asked": "asked\nend\n", "deaf": "end\n"} {
			t.Run(options+" "+argument, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				wardentest.Write(t, p.file("grows.py"), grows)
				words := strings.Fields("rsswarden run --limit 400M --record none --at none --at 50%:signal=USR2 -- apptainer exec " + options)
				r := p.start(p.asPlainUser(append(words, image, python, "grows.py", argument)...)...)
				if out := r.trained(t); out != want {
					t.Errorf("stdout %q, want %q\n%s", out, want, &r.stderr)
				}
			})
		}
	}
}

// condaEnv makes an environment as conda lays it out, with a Python and a standard
// library of its own, that finds the machine's PyTorch: sitecustomize.py is its own.
func (p *place) condaEnv(activate, sitecustomize string) {
	p.t.Helper()
	const ask = "import sys, sysconfig, os; print(os.path.realpath(sys.executable)); print(sysconfig.get_paths()['stdlib'])"
	out, err := exec.Command(python, "-I", "-c", ask).Output()
	exe, stdlib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	wardentest.NoError(p.t, err)
	prefix := p.file("envs/train")
	lib, program := filepath.Join(prefix, "lib", filepath.Base(stdlib)), string(wardentest.ReadFile(p.t, exe))
	wardentest.Write(p.t, filepath.Join(prefix, "bin/python"), program)
	wardentest.Write(p.t, filepath.Join(prefix, "conda-meta/history"), "")
	wardentest.Write(p.t, filepath.Join(prefix, "etc/conda/activate.d/train.sh"), activate)
	wardentest.Write(p.t, p.file("mine/helper.py"), "print('helper', flush=True)\n")
	entries, err := os.ReadDir(stdlib)
	if err == nil {
		err = os.MkdirAll(lib, 0o755)
	}
	for _, e := range entries {
		if err == nil && !strings.HasSuffix(e.Name(), "-packages") && e.Name() != "sitecustomize.py" {
			err = os.Symlink(filepath.Join(stdlib, e.Name()), filepath.Join(lib, e.Name()))
		}
	}
	wardentest.NoError(p.t, err)
	// Debian's Python has another name for site-packages than conda's.
	site, err := exec.Command(filepath.Join(prefix, "bin/python"), "-I", "-c", "import site; print(site.getsitepackages()[0])").Output()
	if err != nil || !strings.HasPrefix(string(site), prefix) {
		p.t.Fatalf("%q, %v", site, err)
	}
	wardentest.Write(p.t, filepath.Join(strings.TrimSpace(string(site)), "machine.pth"), "/usr/lib/python3/dist-packages\n")
	wardentest.Write(p.t, filepath.Join(strings.TrimSpace(string(site)), "sitecustomize.py"), sitecustomize)
}

// condaTrain says what it sees of the environment, and has PyTorch load the hook.
const condaTrain = `import os, sys, time
import helper
import torch.utils.data
print(sys.prefix, sys.mark, sys.flags.no_user_site, os.environ["PYTHONPATH"].split(":")[-1], flush=True)
end = time.monotonic() + 60
while not os.path.exists("work/enough") and time.monotonic() < end:
    time.sleep(0.02)
`

// TestConda: the hook is in force in a conda environment, and so are its own
// sitecustomize, what was on PYTHONPATH and PYTHONNOUSERSITE. Where activating it overwrites
// PYTHONPATH behind rsswarden, a line says so.
func TestConda(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	const keeps, overwrites = "export PYTHONNOUSERSITE=1 PYTHONPATH=@dir/mine${PYTHONPATH:+:$PYTHONPATH}\n", "export PYTHONPATH=@dir/mine\n"
	for _, c := range []struct {
		name, activate string
		behind         bool // it is activated behind rsswarden
		reached        bool
	}{
		{"before", "export PYTHONNOUSERSITE=1 PYTHONPATH=@dir/mine\n", false, true},
		{"behind", keeps, true, true},
		{"behind, overwritten", overwrites, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "behind" {
				wardentest.Long(t)
			}
			t.Parallel()
			p := newPlace(t, "conda/train.sbatch", "testdata/conda")
			p.condaEnv(strings.ReplaceAll(c.activate, "@dir", p.dir), "import sys\nsys.mark = 'own'\n")
			wardentest.Write(p.t, p.file("train.py"), condaTrain)
			words := []string{"/bin/bash", "train.sbatch"}
			if c.behind {
				words = []string{"rsswarden", "run", "--", "/bin/bash", "-c", `eval "$(conda shell.bash hook)"; conda activate train; python train.py`}
			}
			r := p.start(words...)
			r.event("event=loader what=" + map[bool]string{true: "hello", false: "unreached"}[c.reached])
			p.enough()
			status, out := r.ends(), r.stdout.String()
			if want := "helper\n" + p.file("envs/train") + " own "; status != 0 || !strings.HasPrefix(out, want) {
				t.Errorf("status %d, stdout %q, want %q first\n%s", status, out, want, &r.stderr)
			}
			if c.reached && !strings.Contains(out, " own 1 ") {
				t.Errorf("PYTHONNOUSERSITE is not in force: %q", out)
			}
			if !c.behind && !strings.HasSuffix(out, " "+p.file("mine")+"\n") {
				t.Errorf("PYTHONPATH has lost what it had: %q", out)
			}
			told := strings.Contains(r.stderr.String(), "PYTHONPATH was overwritten, without the hook's directory")
			if told == c.reached {
				t.Errorf("told %v\n%s", told, &r.stderr)
			}
		})
	}
}

// plainUser is the user that Apptainer runs as here, without any privilege, as it does on
// most clusters: it makes a user namespace.
const plainUser = 65534

// inSid makes of a command one of Debian sid, which has Accelerate, with the place's PATH.
func (p *place) inSid(words ...string) []string {
	p.t.Helper()
	return debian.Need(p.t, debian.Sid).Argv("env", append([]string{p.path()}, words...)...)
}

// forApptainer takes the image, a folder with what Apptainer needs of /var/lib, then the
// command. An overlay without an upper directory is read-only.
const forApptainer = `
mount --bind "$1" ` + image + ` && mount -t overlay -o "lowerdir=$2:/var/lib" overlay /var/lib || exit 125
shift 2
exec "$@"
`

// asPlainUser makes a command of Debian sid run as plainUser, who then owns the place.
// The root of Debian 13 is at /mnt: an image of a container that any user can reach.
func (p *place) asPlainUser(words ...string) []string {
	p.t.Helper()
	varLib := p.t.TempDir()
	wardentest.NoError(p.t, os.MkdirAll(filepath.Join(varLib, "apptainer/mnt/session"), 0o755))
	wardentest.NoError(p.t, os.Chmod(filepath.Dir(p.dir), 0o755)) // which was made for its owner alone
	wardentest.NoError(p.t, filepath.WalkDir(p.dir, func(name string, _ fs.DirEntry, err error) error {
		return cmp.Or(err, os.Lchown(name, plainUser, plainUser))
	}))
	return debian.Need(p.t, debian.Sid).Argv("sh", slices.Concat(
		[]string{"-c", forApptainer, "sh", debian.Need(p.t, debian.Trixie).Path("/"), varLib, "env", p.path(),
			"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, words)...)
}
