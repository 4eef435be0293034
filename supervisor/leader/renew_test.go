package leader

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// TestRenew: what somebody has removed or broken of ours comes back, and neither
// does anybody go missing meanwhile nor do two lead.
func TestRenew(t *testing.T) {
	dir := parent(t)
	m1, _ := rank(t, 0)
	m2, _ := rank(t, 1)
	first, second := join(t, dir, m1), join(t, dir, m2)
	if led, err := first.TryLead(); err != nil || !led {
		t.Fatalf("leads %v, %v", led, err)
	}
	fallen := make(chan error, 1)
	go func() { fallen <- second.Wait() }()
	awaitLock(t, filepath.Join(first.Path(), lockName))
	if others, _, err := first.Members(); err != nil || len(others) != 1 {
		t.Fatalf("met %v, %v", others, err)
	}
	for _, name := range []string{first.mine, second.mine, second.box("order"), lockName} {
		if err := os.Remove(filepath.Join(first.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if others, left, err := first.Members(); err != nil || len(others) != 1 || len(left) != 0 {
		t.Fatalf("without its file: met %v, left %v, %v", others, left, err)
	}
	for i, p := range []*Post{first, second} {
		reopened, err := p.Renew([]Member{m1, m2}[i])
		if err != nil || reopened != (p == second) {
			t.Errorf("%d: reopened %v, %v", i, reopened, err)
		}
		if reopened, err := p.Renew([]Member{m1, m2}[i]); err != nil || reopened {
			t.Errorf("%d: with all in place reopened %v, %v", i, reopened, err)
		}
	}
	if err := os.WriteFile(filepath.Join(first.Path(), second.mine), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Renew(m2); err != nil {
		t.Fatal(err)
	}

	m3, _ := rank(t, 2)
	third := join(t, dir, m3)
	if led, err := third.TryLead(); err != nil || led {
		t.Fatalf("two lead: %v, %v", led, err)
	}
	others, _, err := third.Members()
	if err != nil || len(others) != 2 || others[0].Holder != m1.Holder || others[1].Holder != m2.Holder {
		t.Errorf("who came later met %v, %v", others, err)
	}

	// Who waits for the lock that lost its name gets the lead as ever.
	first.End(m1, Ended{})
	select {
	case err := <-fallen:
		if err != nil || !second.Leads() || second.Killed() {
			t.Fatalf("%v, leads %v, after one that was killed %v", err, second.Leads(), second.Killed())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the lead was not taken over")
	}
	if led, err := third.TryLead(); err != nil || led {
		t.Errorf("two lead: %v, %v", led, err)
	}
	second.Leave()
	third.Leave()
	if _, err := os.Stat(first.Path()); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}

// awaitLock returns once this process waits in flock(2) for a file: proc(5), /proc/locks.
func awaitLock(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	waits := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .* %d [^ ]*:%d `, os.Getpid(), info.Sys().(*syscall.Stat_t).Ino))
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		if waits.Match(locks) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nothing of ours waits for %s:\n%s", path, locks)
		}
	}
}

// TestRenewTouches: a cleaner removes what has not been touched for days.
func TestRenewTouches(t *testing.T) {
	m, _ := rank(t, 0)
	p := join(t, parent(t), m)
	defer p.Leave()
	if _, err := p.TryLead(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-11 * 24 * time.Hour)
	paths := []string{p.Path()}
	for _, name := range []string{p.mine, p.box("order"), lockName} {
		paths = append(paths, filepath.Join(p.Path(), name))
	}
	for _, path := range paths {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Renew(m); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("%s: %v, %v", path, info.ModTime(), err)
		}
	}
}
