package cgroup2

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const user = 1000

// limitThatBinds: limits are found at all levels above the process, each with
// the file that has it, and the nearest is the one that binds.
func limitThatBinds(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	step := group(t, "job/step", "memory.max", "200M", "memory.high", "190M")
	task := group(t, "job/step/task")
	r := start(t, task, user)
	r.eat(20 * rss.MiB)
	out, err := exec.Command(program, "limits", "--json", "--pid", strconv.Itoa(r.cmd.Process.Pid)).Output()
	wardentest.NoError(t, err)
	var asked struct{ Limits []event.Limit }
	r.read(out, &asked)
	for what, limits := range map[string][]event.Limit{"run": r.begun().Limits, "limits": asked.Limits} {
		for _, want := range []struct {
			name   event.LimitName
			level  string
			size   rss.Bytes
			source string
		}{
			{event.LimitCgroup, step, 200 * rss.MiB, "memory.max"},
			{event.LimitCgroup, job, 300 * rss.MiB, "memory.max"},
			{event.LimitThrottle, step, 190 * rss.MiB, "memory.high"},
		} {
			l := find(t, limits, want.name, want.level)
			if l.Limit != want.size || l.LimitSource != filepath.Join(want.level, want.source) || l.Binding != (want.size == 200*rss.MiB) {
				t.Errorf("%s: %+v, want %+v", what, l, want)
			}
		}
		for _, l := range limits {
			if l.Level == task {
				t.Errorf("%s: a limit where there is none: %+v", what, l)
			}
		}
	}
	wait(r, event.NameSample, "what was taken", func(s *event.Sample) bool {
		return find(t, s.Limits, event.LimitCgroup, step).Used > 20*rss.MiB
	})
	r.ends(0)
	if p := r.last().Peaks.Cgroup; p == nil || *p < 20*rss.MiB || *p > 60*rss.MiB {
		t.Errorf("the peak is %v", p)
	}
}

// high: memory.high slows down and ends nothing. A rule may name it.
func high(t *testing.T) {
	job := group(t, "job", "memory.max", "300M", "memory.high", "72M")
	r := start(t, job, user, "--at", "throttle 60%:warn")
	r.eat(40 * rss.MiB)
	d := wait(r, event.NameDecision, "memory.high coming near", func(d *event.Decision) bool { return d.Limit == event.LimitThrottle })
	if d.LimitSize != 72*rss.MiB || d.Used < 43*rss.MiB {
		t.Errorf("%+v", d)
	}
	if !r.eat(20*rss.MiB) || !r.eat(4*rss.MiB) {
		t.Error("the eater did not live on")
	}
	r.ends(0)
	r.says("memory.high, the kernel slows the job at it", "throttle ")
	if e := r.last(); e.Outcome != event.RunOK || e.Binding == nil || e.Binding.Name != event.LimitCgroup || len(e.Kernel) != 0 || e.Slowed == 0 {
		t.Errorf("%+v", e)
	}
	out, err := exec.Command(program, "report", "--full", r.dir+"/records").CombinedOutput()
	wardentest.NoError(t, err)
	wardentest.Says(t, string(out), "the kernel slowed allocations down ")
}

// loweredLive: a limit that is lowered, lifted and set again while the job runs is
// reported each time, and the rungs are judged by it.
func loweredLive(t *testing.T) {
	job := group(t, "job", "memory.max", "400M")
	r := start(t, job, user)
	r.eat(100 * rss.MiB)
	r.begun()
	found := func(size rss.Bytes) *event.Found {
		t.Helper()
		return wait(r, event.NameLimit, size.String(), func(f *event.Found) bool { return f.Name == event.LimitCgroup && f.Limit.Limit == size })
	}
	set(t, job, "memory.max", "128M")
	moved := found(128 * rss.MiB)
	d := wait(r, event.NameDecision, "a rung of the new limit", func(d *event.Decision) bool { return d.Action == event.ActionWarn })
	if d.LimitSize != 128*rss.MiB || d.Used.Of(d.LimitSize) < 0.8 || d.Seq < moved.Seq {
		t.Errorf("%+v after %+v", d, moved)
	}
	set(t, job, "memory.max", "max")
	wait(r, event.NameSample, "no limit", func(s *event.Sample) bool {
		for i := range s.Limits {
			if s.Limits[i].Name == event.LimitCgroup {
				return false
			}
		}
		return s.Seq > d.Seq
	})
	set(t, job, "memory.max", "300M")
	found(300 * rss.MiB)
	// The kernel reclaims, and where that does not do it kills: often the watcher
	// too, before the memory of the first is given back. A signal to who writes, as
	// the Go runtime sends itself, has it leave that to who is charged next.
	wardentest.NoError(t, os.WriteFile(filepath.Join(job, "memory.max"), []byte("64M"), 0))
	if r.eat(4 * rss.MiB) {
		t.Error("the eater still runs above the limit")
	}
	r.ends(137)
	r.says("limit cgroup is now 128 MiB, was 400 MiB")
}

// pageCache: what is read and written fills the charge up to the limit and is
// no reason to act; what is in memory alone counts.
func pageCache(t *testing.T) {
	job := group(t, "job", "memory.max", "64M")
	r := start(t, job, user)
	r.do("file %d "+r.dir+"/data", 96*rss.MiB)
	s := wait(r, event.NameSample, "page cache at the limit", func(s *event.Sample) bool {
		return find(t, s.Limits, event.LimitCgroup, job).Charged > 52*rss.MiB
	})
	if l := find(t, s.Limits, event.LimitCgroup, job); l.Used > 40*rss.MiB || l.Charged > 64*rss.MiB || !strings.Contains(l.Note, "page cache fills the charge") && l.Charged > 61*rss.MiB {
		t.Errorf("%+v", l)
	}
	if d := r.events(event.NameDecision); len(d) > 0 {
		t.Errorf("decided: %s", d[0].text)
	}
	name := "/tmp/data" // tmpfs
	t.Cleanup(func() { os.Remove(name) })
	r.do("file %d "+name, 20*rss.MiB)
	wait(r, event.NameSample, "what is in tmpfs", func(s *event.Sample) bool {
		return find(t, s.Limits, event.LimitCgroup, job).Used > 20*rss.MiB
	})
	r.ends(0)
}

// swap: where a cgroup may swap, the kernel kills later, and the limit is that
// much greater.
func swap(t *testing.T) {
	const file = "/disk/swap"
	f, err := os.Create(file)
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.Remove(file) })
	chunk := make([]byte, rss.MiB)
	for range 96 {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	for _, c := range [][]string{{"mkswap", file}, {"swapon", file}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", c, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("swapoff", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	job := group(t, "job", "memory.max", "64M", "memory.swap.max", "64M")
	r := start(t, job, user)
	if l := find(t, r.begun().Limits, event.LimitCgroup, job); l.Limit != 128*rss.MiB || !strings.Contains(l.Note, "of swap is counted in") {
		t.Errorf("%+v", l)
	}
	for range 14 { // no faster than a slow disk can swap: the kernel kills where it waits too long
		if !r.eat(4 * rss.MiB) {
			t.Fatal("56 MiB did not fit in 64 MiB and 64 MiB of swap")
		}
		time.Sleep(100 * time.Millisecond)
	}
	wait(r, event.NameSample, "what was swapped out", func(s *event.Sample) bool {
		return find(t, s.Limits, event.LimitCgroup, job).Used > 64*rss.MiB
	})
	r.ends(0)
	remove(t, job)

	// A level above that allows no swap: the kernel kills at memory.max.
	group(t, "above", "memory.swap.max", "0")
	job = group(t, "above/job", "memory.max", "96M")
	r = start(t, job, user)
	if l := find(t, r.begun().Limits, event.LimitCgroup, job); l.Limit != 96*rss.MiB {
		t.Errorf("no swap above: %+v", l)
	}
	for len(r.events(event.NameDecision)) == 0 {
		if !r.eat(4 * rss.MiB) {
			t.Fatal("no rung before the kernel killed")
		}
		time.Sleep(200 * time.Millisecond)
	}
	wait(r, event.NameDecision, "a rung", func(d *event.Decision) bool { return d.Limit == event.LimitCgroup && d.LimitSize == 96*rss.MiB })
	if r.eat(96 * rss.MiB) {
		t.Error("the eater still runs above the limit")
	}
	r.ends(137)
}

// namespace: in a cgroup namespace of its own, which shows its cgroup as "/", with the
// mount of all cgroups.
func namespace(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	task := group(t, "job/task")
	t.Setenv(inNamespace, "1")
	r := startCommand(t, task, 0, append([]string{eater()}, rsswarden("--", eater())...)...)
	l := find(t, r.begun().Limits, event.LimitCgroup, job)
	if l.Limit != 300*rss.MiB || l.LimitSource != filepath.Join(job, "memory.max") || !l.Binding {
		t.Errorf("%+v", l)
	}
	r.ends(0)
}

// commit: where the kernel does not overcommit, what was asked for is compared with
// what it allows.
func commit(t *testing.T) {
	const vm = "/proc/sys/vm"
	for file, text := range map[string]string{"overcommit_kbytes": "700000", "overcommit_memory": "2"} {
		was := wardentest.ReadFile(t, filepath.Join(vm, file))
		t.Cleanup(func() { set(t, vm, file, string(was)) })
		set(t, vm, file, text)
	}
	r := start(t, group(t, "job"), user)
	r.begun()
	eaten := rss.Bytes(0)
	for ; len(r.events(event.NameDecision)) == 0; eaten += 8 * rss.MiB {
		if !r.eat(8 * rss.MiB) {
			t.Fatalf("refused after %v, and nothing was said", eaten)
		}
		time.Sleep(100 * time.Millisecond) // a look is a second
	}
	d := wait(r, event.NameDecision, "committed memory", func(d *event.Decision) bool { return d.Limit == event.LimitCommit })
	if d.LimitSize != 700000*rss.KiB || d.Used.Of(d.LimitSize) < 0.8 {
		t.Errorf("%+v", d)
	}
	r.says(fmt.Sprintf("committed memory %d", int(d.Used.Of(d.LimitSize)*10)))
	r.ends(0)
}

// unmarshalled is for what is no event.
func unmarshalled(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

// statuses: a command ends as it does bare.
func statuses(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "exec /none": 127} {
		r := startCommand(t, job, user, rsswarden("--", "/bin/sh", "-c", script)...)
		r.ends(want)
	}
	r := startCommand(t, job, user, rsswarden("--", "/bin/sh", "-c", `trap "exit 3" USR1; echo ready; while :; do sleep 0.1; done`)...)
	if line, err := r.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	wardentest.NoError(t, r.cmd.Process.Signal(syscall.SIGUSR1))
	r.ends(3)
}

// wholeTree: an orphan in a session of its own counts, once it was seen as a
// descendant.
func wholeTree(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	r := startCommand(t, job, user, rsswarden("--limit", "100M", "--accounting", "rss", "--at", "none", "--at", "user 80%:warn", "--",
		"/bin/sh", "-c", `read go; exec 3<&0; (setsid "$0" <&3 & sleep 3); exec 3<&-; while :; do sleep 0.1; done`, eater())...)
	wait(r, event.NameSample, "a look", func(*event.Sample) bool { return true })
	if _, err := r.in.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	r.eat(100 * rss.MiB)
	d := wait(r, event.NameDecision, "the orphan", func(d *event.Decision) bool { return d.Limit == event.LimitUser })
	if d.Used < 80*rss.MiB {
		t.Errorf("%+v", d)
	}
	wardentest.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.ends(128 + 15)
}

// trimmed: mapped pages are dropped by ptrace, which asks nothing of a kernel that
// the oldest has not.
func trimmed(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	data := "/disk/mapped"
	wardentest.NoError(t, os.WriteFile(data, make([]byte, 64*rss.MiB), 0o644))
	t.Cleanup(func() { os.Remove(data) })
	r := start(t, job, user, "--limit", "80M", "--accounting", "rss", "--trim", "ptrace", "--at", "none", "--at", "user 75%:trim")
	if !r.do("map %d "+data, 64*rss.MiB) {
		t.Fatal("the eater did not live on")
	}
	o := wait(r, event.NameOutcome, "a trim", func(*event.Outcome) bool { return true })
	if !o.OK || o.Freed < 56*rss.MiB {
		t.Errorf("%+v", o)
	}
	r.ends(0)
}

// stalls: the kernel is asked to tell of stalls for memory where it lets us, which
// before Linux 6.1 of Debian's is root alone.
func stalls(t *testing.T) {
	kernel := os.Getenv(inGuest)
	job := group(t, "job", "memory.max", "300M")
	for _, uid := range []int{0, user} {
		r := start(t, job, uid)
		r.eat(rss.MiB)
		// It is asked after two seconds; samples are a second apart.
		wardentest.Until(t, "four samples", func() bool { return len(r.events(event.NameSample)) >= 4 })
		if got, want := asksForStalls(t), uid == 0 || !older(kernel, [2]int{6, 1}); got != want {
			t.Errorf("user %d: /proc/pressure/memory is asked: %v, want %v", uid, got, want)
		}
		r.ends(0)
		if e := r.events(event.NameFault); len(e) > 0 {
			t.Errorf("user %d: %s", uid, e[0].text)
		}
	}
}

// asksForStalls looks at the descriptors of the watcher.
func asksForStalls(t *testing.T) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	wardentest.NoError(t, err)
	var links []string
	for _, comm := range all {
		if b, err := os.ReadFile(comm); err == nil && string(b) == "rss-watcher\n" {
			links, _ = filepath.Glob(filepath.Join(filepath.Dir(comm), "fd", "*"))
		}
	}
	if len(links) == 0 {
		t.Fatal("no watcher")
	}
	for _, link := range links {
		if to, _ := os.Readlink(link); to == "/proc/pressure/memory" {
			return true
		}
	}
	return false
}

// clockSet: the clock is set an hour ahead, and then back to an hour behind where it
// was. No rung fires by it, nothing is forecast, and the record has the time that passed.
func clockSet(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	r := start(t, job, user, "--interval", "200ms", "--at", "none", "--at", "80%:warn", "--at", "eta<10h:warn")
	began := time.Now() // with the monotonic clock
	r.eat(60 * rss.MiB)
	r.begun()
	samples := func() int { return len(r.events(event.NameSample)) }
	more := func() {
		t.Helper()
		for had, end := samples(), time.Now().Add(rsstest.Patience); samples() < had+4; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no more samples are taken")
			}
		}
	}
	more()
	set := 0 * time.Second
	jump := func(by time.Duration) {
		t.Helper()
		tv := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
		wardentest.NoError(t, unix.Settimeofday(&tv))
		set += by
	}
	defer func() { jump(-set) }()
	jump(time.Hour)
	more()
	jump(-2 * time.Hour)
	more()
	r.ends(0)
	lasted := time.Since(began).Seconds() + 1
	for _, l := range r.events(event.NameDecision) {
		t.Errorf("a rung fired: %s", l.text)
	}
	r.says("finished, memory fine")
	records, err := filepath.Glob(r.dir + "/records/*")
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	out, err := exec.Command(program, "report", "--csv", records[0]).Output()
	wardentest.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 10 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	last := 0.0
	for _, row := range rows[1:] {
		at, err := strconv.ParseFloat(row[1], 64)
		if err != nil || at < last || at > lasted {
			t.Errorf("after %g s comes %s s, %v, of %.1f s", last, row[1], err, lasted)
			break
		}
		last = at
		if eta := row[len(row)-1]; eta != "" {
			t.Errorf("a forecast: %q", row)
			break
		}
	}
}
