package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func writeCmdline(t *testing.T, proc string, pid int, line string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sampleAt is a sample with these processes, all started at tick 1.
func sampleAt(mono time.Duration, pids ...int) *rss.Sample {
	s := &rss.Sample{Mono: mono}
	for _, pid := range pids {
		s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S'})
	}
	return s
}

// matched updates until the matcher has answered as wanted, or fails.
func matched(t *testing.T, m *matcher, s *rss.Sample, want int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for m.update(s, 10); len(m.workers(s)) != want; m.update(s, 10) {
		if time.Now().After(deadline) {
			t.Fatalf("%v match, want %d", m.workers(s), want)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestMatcherReadsAgainAfterExec(t *testing.T) {
	proc := t.TempDir()
	writeCmdline(t, proc, 10, "pool\x00worker\x00")
	writeCmdline(t, proc, 11, "pool\x00worker\x001\x00")
	writeCmdline(t, proc, 12, "pool\x00-workers\x004\x00") // forked, not yet exec'ed
	m, err := newMatcher("^pool worker", proc)
	if err != nil {
		t.Fatal(err)
	}
	matched(t, m, sampleAt(0, 10, 11, 12), 1) // the command itself is none
	writeCmdline(t, proc, 12, "pool\x00worker\x002\x00")
	matched(t, m, sampleAt(time.Second, 10, 11, 12), 2)
	matched(t, m, sampleAt(time.Second, 10, 12), 1)

	old := sampleAt(settled+time.Second, 10, 12)
	for deadline := time.Now().Add(10 * time.Second); !m.seen[rss.ProcID{PID: 12, Start: 1}].final; m.update(old, 10) {
		if time.Now().After(deadline) {
			t.Fatal("a command line is still read again after it has settled")
		}
	}
}

func TestNoMatcherMatchesNothing(t *testing.T) {
	m, err := newMatcher("", "/nowhere")
	if err != nil || m != nil {
		t.Fatal(m, err)
	}
	s := sampleAt(0, 10)
	m.update(s, 10)
	if ids := m.workers(s); ids != nil {
		t.Errorf("%v match", ids)
	}
}
