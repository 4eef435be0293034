package cgroup2

import (
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
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
	out, errs, err := wardentest.Output(program, "report", "--json", r.dir+"/records")
	if err != nil {
		r.t.Fatalf("%v: %s", err, errs)
	}
	var report struct {
		Cause     event.Cause
		Certainty string
		Verdict   string
	}
	unmarshalled(r.t, []byte(out), &report)
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

// groupScene fills a cgroup of 100 MiB twice, first with memory.oom.group: then
// the kernel kills holder and watcher too. Each time the report is asked for,
// from all there is and from the journal alone.
//
//go:embed testdata/group.sh
var groupScene string

// TestDeathByGroup: where the kernel kills a whole cgroup, no process of ours is left to
// report it. What was recorded before is whole.
func TestDeathByGroup(t *testing.T) {
	scene := filepath.Join(t.TempDir(), "scene")
	wardentest.NoError(t, os.WriteFile(scene, []byte(groupScene), 0o644))
	out, exit := guest.Run(t, guest.Options{
		Binary: wardentest.Program(t, wardentest.Static), Args: []string{"run", "--", "/bin/sh", "/guest/scene"},
		// It only starts the scene.
		Env:   []string{"RSSWARDEN=off"},
		Files: map[string]string{"/guest/scene": scene}, DiskMB: 300, Timeout: guestTime,
	})
	if exit != 0 {
		t.Fatalf("in the guest: status %d\n%s", exit, out)
	}
	scenes := strings.SplitAfter(out, "@done\n")
	if len(scenes) != 3 {
		t.Fatalf("%d scenes:\n%s", len(scenes)-1, out)
	}
	t.Run("whole group", func(t *testing.T) {
		all := groupReports(t, scenes[0], 137, `most likely killed by the kernel: cgroup \S+/group1 (was full|filled up): .* of 100 MiB could not be reclaimed .* the watcher was killed as well, as memory.oom.group does`)
		if all.Runs[0].Code != nil || all.Runs[0].Signal != nil {
			t.Errorf("a process of ours saw the end: %+v", all.Runs[0])
		}
	})
	t.Run("one process", func(t *testing.T) {
		groupReports(t, scenes[1], 137, `killed by the kernel: cgroup \S+/group0 .* of 100 MiB could not be reclaimed`)
	})
}

// recordGap is the most that a SIGKILL may cost: the pause between two samples,
// a second, and what a busy machine is late by.
const recordGap = 1500 * time.Millisecond

// groupReports reads what one scene said, and judges both reports.
func groupReports(t *testing.T, out string, status int, says string) *analysis.Result {
	t.Helper()
	m := regexp.MustCompile(`(?s)@ended (\d+)\n@killed (\S+) (\S+)\n@now ([^\n]+)\n@all\n(.*)@journal\n(.*)@done\n`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	// The kernel's log has the kill by the seconds since the boot.
	uptime, err1 := strconv.ParseFloat(m[2], 64)
	kill, err2 := strconv.ParseFloat(m[3], 64)
	now, err3 := time.Parse("2006-01-02 15:04:05.999999999 -0700", m[4])
	if err := errors.Join(err1, err2, err3); err != nil || m[1] != strconv.Itoa(status) {
		t.Fatalf("status %s: %v\n%s", m[1], err, out)
	}
	killed := now.Add(-time.Duration((uptime - kill) * float64(time.Second)))
	var reports [2]analysis.Result
	for i, name := range []string{"all", "journal alone"} {
		r := &reports[i]
		if err := json.Unmarshal([]byte(m[5+i]), r); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		gap := killed.Sub(r.End)
		t.Logf("%s, to %v before the kill: %s, %s: %s", name, gap.Round(time.Millisecond), r.Cause, r.Certainty, r.Verdict)
		if r.Cause != event.CauseKernelOOM || !regexp.MustCompile(says).MatchString(r.Verdict) {
			t.Errorf("%s: cause %q, %q does not say %q", name, r.Cause, r.Verdict, says)
		}
		if len(r.Runs) != 1 || len(r.Runs[0].Damage) > 0 || r.Runs[0].JournalOnly != (i == 1) {
			t.Fatalf("%s: runs %+v", name, r.Runs)
		}
		if gap > recordGap {
			t.Errorf("%s: the last thing recorded is %v older than the kill, want at most %v", name, gap, recordGap)
		}
	}
	return &reports[0]
}
