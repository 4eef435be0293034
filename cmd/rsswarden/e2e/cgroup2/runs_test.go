package cgroup2

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
		wait(r, event.NameSample, "a look", func(*event.Sample) bool { return true })
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
