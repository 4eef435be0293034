package cgroup2

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// warnedThenKilled: of a command that grows, rungs are told of before the kernel
// kills it, and the end says which cgroup was full.
func warnedThenKilled(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	step := group(t, "job/step", "memory.max", "160M")
	task := group(t, "job/step/task")
	r := start(t, task, user)
	for range 12 {
		r.eat(10 * rss.MiB)
	}
	d := wait(r, event.NameDecision, "a rung", func(d *event.Decision) bool { return d.Action == event.ActionWarn })
	if d.Limit != event.LimitCgroup || d.LimitSize != 160*rss.MiB || d.Used < d.Threshold {
		t.Errorf("%+v", d)
	}
	if r.eat(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	r.ends(137)
	e := r.last()
	if e.Outcome != event.RunOOM || e.Signal == nil || *e.Signal != "SIGKILL" || e.Binding == nil || e.Binding.Level != step || e.Advice <= 160*rss.MiB {
		t.Errorf("%+v", e)
	}
	var levels []string
	for _, k := range e.Kernel {
		if k.Kills == 0 || k.Leaf != (k.Level == task) {
			t.Errorf("%+v", k)
		}
		levels = append(levels, k.Level)
	}
	// Each level counts what is below it, before Linux 5.2 by adding it up.
	if want := []string{task, step, job}; !slices.Equal(levels, want) {
		t.Errorf("kills at %v, want %v", levels, want)
	}
	r.says(" 8", "out of memory: the kernel killed ", "next #SBATCH --mem=")
	r.reports("killed by the kernel: cgroup /…/step ", "160 MiB could not be reclaimed", `"seen"`)
}

// reports asks for the report of a run that the kernel ended, and looks for words
// in it.
func (r *run) reports(words ...string) {
	r.t.Helper()
	out, err := exec.Command(program, "report", "--json", r.dir+"/records").Output()
	wardentest.NoError(r.t, err)
	var report struct {
		Cause     event.Cause
		Certainty string
		Verdict   string
	}
	unmarshalled(r.t, out, &report)
	said := report.Verdict + ` "` + report.Certainty + `"`
	if report.Cause != event.CauseKernelOOM {
		r.t.Errorf("the cause is %q: %s", report.Cause, said)
	}
	wardentest.Says(r.t, said, words...)
}

// groupKilled: with memory.oom.group the kernel kills all of the job at once,
// rsswarden too. The record tells what was.
func groupKilled(t *testing.T) {
	job := group(t, "job", "memory.max", "100M", "memory.oom.group", "1")
	r := start(t, job, user)
	for r.eat(5 * rss.MiB) { // slowly enough for the record to have it
		time.Sleep(100 * time.Millisecond)
	}
	r.ends(137)
	if all := r.events(event.NameExit); len(all) > 0 {
		t.Errorf("a process of ours saw the end: %s", all[0].text)
	}
	r.reports("/job", "memory.oom.group", `"inferred"`)
}

// delegated: a user who was given a cgroup makes one below it, with a limit of
// his own, and runs in that.
func delegated(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	t.Cleanup(func() { remove(t, job+"/own") })
	if out, err := exec.Command("chown", "1000", job, job+"/cgroup.procs", job+"/cgroup.threads", job+"/cgroup.subtree_control").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const enter = `set -e
cd "$1"
mkdir own
echo $$ >own/cgroup.procs
echo +memory >cgroup.subtree_control
echo 83886080 >own/memory.max
cd /
shift
exec "$@"`
	r := startCommand(t, job, user, append([]string{"sh", "-c", enter, "sh", job}, rsswarden("--", eater())...)...)
	limits := r.begun().Limits
	if own, all := find(t, limits, event.LimitCgroup, job+"/own"), find(t, limits, event.LimitCgroup, job); own.Limit != 80*rss.MiB || !own.Binding || all.Limit != 300*rss.MiB {
		t.Errorf("%+v", limits)
	}
	if r.eat(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	r.ends(137)
	if e := r.last(); e.Outcome != event.RunOOM || e.Binding.Level != job+"/own" {
		t.Errorf("%+v", e)
	}
	r.reports("own")
}

// rootOwned: rsswarden needs to write nothing in a cgroup.
func rootOwned(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	task := group(t, "job/task")
	r := start(t, task, user)
	if !r.eat(20 * rss.MiB) {
		t.Error("the eater did not live on")
	}
	r.ends(0)
	if e := r.last(); e.Binding == nil || e.Binding.Level != job {
		t.Errorf("%+v", e)
	}
}

// moved: a command that moves to another cgroup is followed there: its limit is found,
// rungs count for it, and the kill is the kernel's.
func moved(t *testing.T) {
	job := group(t, "job", "memory.max", "600M")
	other := group(t, "other", "memory.max", "160M")
	r := startCommand(t, job, 0, rsswarden("--", "/bin/sh", "-c", `read go; echo $$ >"$1/cgroup.procs"; exec "$0"`, eater(), other)...)
	wait(r, event.NameSample, "a look", func(*event.Sample) bool { return true })
	if _, err := r.in.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	l := wait(r, event.NameLimit, "the other cgroup's limit", func(l *event.Found) bool { return l.Level == other })
	if l.Limit.Limit != 160*rss.MiB {
		t.Errorf("%+v", l)
	}
	for range 14 {
		r.eat(10 * rss.MiB)
	}
	wait(r, event.NameDecision, "a rung", func(d *event.Decision) bool { return d.LimitSize == 160*rss.MiB })
	if r.eat(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	r.ends(137)
	e := r.last()
	if e.Outcome != event.RunOOM || e.Binding == nil || e.Binding.Level != other ||
		!slices.ContainsFunc(e.Kernel, func(k event.KernelKills) bool { return k.Level == other && k.Leaf && k.Kills > 0 }) {
		t.Errorf("%+v", e)
	}
}
