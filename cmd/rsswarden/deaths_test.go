package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// dyingJob is a job that ends in a way of its own.
const dyingJob = `
import ctypes, mmap, os, resource, signal, sys, time

def touch(mib):
    b = mmap.mmap(-1, mib << 20)
    for i in range(0, len(b), 4096): b[i] = 1
    return b

def ready():
    print("ready", flush=True)

what = sys.argv[1]
keep = []
if what == "grow":           # until it is killed
    while True:
        keep.append(touch(20))
        time.sleep(0.15)
elif what == "worker":       # until its worker is killed
    touched = touch(60)
    if os.fork() == 0:
        while True:
            keep.append(touch(20))
            time.sleep(0.15)
    _, status = os.wait()
    if os.WIFSIGNALED(status):
        raise RuntimeError("DataLoader worker is killed by signal: Killed.")
elif what == "maps":         # until no mapping is left
    seconds = float(sys.argv[2])
    begun, most = time.time(), int(open("/proc/sys/vm/max_map_count").read())
    while True:
        while len(keep) < most * (time.time() - begun) / seconds:
            # Neighbours of the same protection would be one mapping.
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if len(keep) % 2 else 0)
            keep.append(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot))
        time.sleep(0.01)
elif what == "fail":
    touched = touch(40)
    ready()
    time.sleep(float(sys.argv[2]))
    raise KeyError("label")
elif what == "segv":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    touched = touch(40)
    ready()
    time.sleep(float(sys.argv[2]))
    ctypes.string_at(0)
elif what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
touched = touch(40)
ready()
while True:
    time.sleep(60)
`

// dying is one way for a job to die.
type dying struct {
	name string
	job  string   // arguments of dyingJob
	args []string // of sbatch
	wrap string   // how the script starts the command, "exec WARDEN run --record …" if empty
	meet func(*testing.T, *deathbed)
	// cause is what a report says from the record, the journal and Slurm's word.
	cause event.Cause
	// alone is the same where nobody asks Slurm, where that is less.
	alone event.Cause
	// says is what the first line has, whatever it is made from.
	says string
	// journal is what it has from the journal alone, if that is less.
	journal string
}

// deathbed is a job that is to die.
type deathbed struct {
	*dying
	c      *slurmtest.Cluster
	run    *slurmtest.JobRun
	warden string
	killed time.Time // when meet killed something
}

// submit starts the job. What it leaves of itself is in its own folder.
func (d *dying) submit(t *testing.T, c *slurmtest.Cluster, warden, job string) *deathbed {
	t.Helper()
	wrap := d.wrap
	if wrap == "" {
		wrap = "exec WARDEN run --record $PWD/records --events $PWD/events --"
	}
	wrap = strings.ReplaceAll(wrap, "WARDEN", warden)
	script := "export RSSWARDEN_RUNTIME=$PWD\n" + wrap + " " + python + " " + job + " " + d.job
	args := append([]string{"--mem=300", "--no-requeue"}, d.args...)
	return &deathbed{dying: d, c: c, run: c.Submit(t, script, args...), warden: warden}
}

// ready waits until the job says that it works, and until the time of its end is
// in the events: Slurm is asked for it some seconds after the start.
func (d *deathbed) ready(t *testing.T) {
	t.Helper()
	d.run.Until(t, time.Minute, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("%s: the job ended: %s\n%s", d.name, r.State, r.Stderr)
		}
		b, _ := os.ReadFile(filepath.Join(d.run.Dir, "events"))
		return strings.Contains(r.Stdout, "ready\n") && bytes.Contains(b, []byte(`"limit":"time"`))
	})
}

// report runs the command as the user does, in the directory that the job was
// submitted from.
func (d *deathbed) report(t *testing.T, args ...string) string {
	t.Helper()
	cmd := d.c.Command(t.Context(), d.warden, append([]string{"report", d.run.ID}, args...)...)
	cmd.Env = append(cmd.Env, "RSSWARDEN_RUNTIME="+d.run.Dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("report %v: %v %s", args, err, stderr.String())
	}
	return string(out)
}

// read is the report as a program sees it.
func (d *deathbed) read(t *testing.T, args ...string) *analysis.Result {
	t.Helper()
	var r analysis.Result
	text := d.report(t, append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if len(r.Runs) != 1 {
		t.Fatalf("%d runs are told of, want 1:\n%s", len(r.Runs), text)
	}
	return &r
}

// verdict is the paragraph that a report begins with, as one line.
func verdict(text string) string {
	first, _, _ := strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

// check asks for the report from all there is, without Slurm's word, and from
// the journal alone.
func (d *deathbed) check(t *testing.T) {
	t.Helper()
	got := d.run.Wait(t)
	t.Logf("Slurm: %s %s %d:%d after %s", got.State, got.Reason, got.ExitCode, got.Signal, got.Fields["RunTime"])
	all := d.read(t)
	d.judge(t, "all", all, d.report(t), d.cause, d.says)
	if all.Slurm == nil || all.Slurm.State != got.State {
		t.Errorf("Slurm's word in the report: %+v, want state %s", all.Slurm, got.State)
	}
	alone := d.cause
	if d.alone != "" {
		alone = d.alone
	}
	d.judge(t, "without Slurm", d.read(t, "--no-slurm"), d.report(t, "--no-slurm"), alone, d.says)
	if all.Runs[0].JournalOnly {
		t.Fatalf("only the journal was read: %v", all.Runs[0].Sources)
	}
	for _, source := range all.Runs[0].Sources {
		if info, err := os.Stat(source); err == nil && info.IsDir() {
			if err := os.RemoveAll(source); err != nil {
				t.Fatal(err)
			}
		}
	}
	says := d.says
	if d.journal != "" {
		says = d.journal
	}
	rest := d.read(t, "--no-slurm")
	d.judge(t, "journal alone", rest, d.report(t, "--no-slurm"), alone, says)
	if !rest.Runs[0].JournalOnly {
		t.Errorf("the record is still read: %v", rest.Runs[0].Sources)
	}
}

func (d *deathbed) judge(t *testing.T, from string, r *analysis.Result, text string, cause event.Cause, says string) {
	t.Helper()
	first := verdict(text)
	t.Logf("%s: %s, %s: %s", from, r.Cause, r.Certainty, first)
	if r.Cause != cause {
		t.Errorf("%s: cause %q, want %q", from, r.Cause, cause)
	}
	if !regexp.MustCompile(says).MatchString(first) {
		t.Errorf("%s: %q does not say %q", from, first, says)
	}
	if t.Failed() {
		t.Log(text)
	}
}
