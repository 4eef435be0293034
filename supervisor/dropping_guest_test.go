package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestTrimDropLowersTheCharge runs itself in a guest, because memory.high is of
// cgroup v2: two processes map a file, and a watcher with real hands keeps the
// charge down.
func TestTrimDropLowersTheCharge(t *testing.T) {
	if os.Getenv("SUPERVISOR_TEST_IN_GUEST") == "" {
		out, exit := guest.Run(t, guest.Options{
			Binary: staticTests(t), Args: []string{"-test.run=^TestTrimDropLowersTheCharge$", "-test.v"},
			Env: []string{"SUPERVISOR_TEST_IN_GUEST=1"}, DiskMB: 160,
		})
		if t.Log(out); exit != 0 || !strings.Contains(out, "--- PASS: TestTrimDropLowersTheCharge") {
			t.Errorf("in the guest: status %d", exit)
		}
		return
	}
	const size, group, data = 96 * rss.MiB, "/sys/fs/cgroup/job", "/disk/data"
	writeCold(t, data, int(size))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"memory.high": "256M", "cgroup.procs": strconv.Itoa(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(group, name), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if !rsstest.StartEater(t).Map(size, data) {
			t.Fatal("an eater has ended")
		}
	}
	charge := func() rss.Bytes {
		b, err := os.ReadFile(filepath.Join(group, "memory.current"))
		n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n == 0 {
			t.Fatalf("%q, %v", b, err)
		}
		return rss.Bytes(n)
	}
	before := charge()
	if before < size {
		t.Fatalf("the charge is %v, the file is not among it", before)
	}
	start, err := proctree.StartTime("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHolder{
		begin:  hold.Begin{PID: os.Getpid(), Start: start, Holder: os.Getpid(), Attempt: 1},
		exited: make(chan hold.Exit, 1), gone: make(chan struct{}),
		trimmed: make(chan hold.TrimAnswer, 1), wants: make(chan hold.TrimRequest),
	}
	trim := Hands()
	go func() {
		for r := range h.wants {
			a := trim(r)
			a.ID = r.ID
			h.trimmed <- a
		}
	}()
	said := &lines{}
	s := &stand{t: t, watcher: newWatcher(Options{
		Link: h, Proc: "/proc", Sys: "/sys", Self: os.Getpid(), Log: said,
		Lookup: func(string) (string, bool) { return "", false },
		Settings: Settings{
			Command: []string{"eaters"}, Accounting: event.AccountingAuto, Rules: []string{"throttle 35%:trim+drop"},
			Interval: 100 * time.Millisecond, Trim: TrimPtrace, Events: filepath.Join(t.TempDir(), "events.jsonl"),
		},
	}, h.begin)}
	s.open(h.begin)
	done := make(chan struct{})
	go func() {
		s.loop()
		close(done)
	}()
	for deadline := time.Now().Add(time.Minute); charge() > before-size+8*rss.MiB && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	after := charge()
	time.Sleep(time.Second) // the outcome is measured
	h.exited <- hold.Exit{}
	<-done
	t.Logf("memory.current was %v, is %v\n%s", before, after, strings.Join(said.all, "\n"))
	o := named(s.events(), event.NameOutcome)
	if len(o) == 0 {
		t.Fatal("no outcome")
	}
	freed, _ := o[0]["freed_bytes"].(float64)
	if detail := fmt.Sprint(o[0]["detail"]); o[0]["ok"] != true || rss.Bytes(freed) < size-8*rss.MiB ||
		!strings.HasPrefix(detail, "2 processes gave back") || !strings.Contains(detail, "1 file left the page cache: 96.0 MiB (measured by cachestat)") {
		t.Errorf("outcomes %v", o)
	}
	if after > before-size+8*rss.MiB {
		t.Errorf("memory.current was %v and is %v", before, after)
	}
}

// staticTests builds the tests of this package for a guest: package hold is of
// C in part, which a static program needs a static C library for.
func staticTests(t *testing.T) string {
	t.Helper()
	if err := guest.Find(); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "guest.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-tags=netgo,osusergo", "-ldflags=-s -w -linkmode=external -extldflags=-static", "-o", path, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no static program with C can be built here: %v: %s", err, out)
	}
	return path
}

// writeCold writes a file and drops it, so that whoever reads it is charged.
func writeCold(t *testing.T, name string, size int) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for range size / len(b) {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}
