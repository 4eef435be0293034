package proctree

import (
	"testing"

	"github.com/prometheus/procfs"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestParseMemInfo(t *testing.T) {
	got, err := parseMemInfo([]byte("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:\t  400 kB\nHugePages_Total: 3\nCommitLimit: 500 kB\nCommitted_AS: 70 kB\nSwapTotal: 20 kB\nSwapFree: 10 kB\n"))
	if want := (MemInfo{1000 << 10, 400 << 10, 20 << 10, 10 << 10, 70 << 10, 500 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, in := range []string{"", "MemTotal: 1 kB\n", "MemTotal: 1 MB\nMemAvailable: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal: 1\nMemAvailable: 1 kB\n"} {
		if got, err := parseMemInfo([]byte(in)); err == nil {
			t.Errorf("%q: got %+v", in, got)
		}
	}
}

func FuzzParseMemInfo(f *testing.F) {
	f.Add([]byte("MemTotal: 1 kB\nMemAvailable: 1 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMemInfo(b); err == nil && len(b) < len("MemTotal:1 kB\nMemAvailable:1 kB") {
			t.Errorf("%+v from %q", m, b)
		}
	})
}

// The same file through two code paths.
func TestMemInfoAsProcfsReadsIt(t *testing.T) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Skip(err)
	}
	theirs, err := fs.Meminfo()
	must(t, err)
	n := NewNode("/proc")
	defer n.Close()
	for range 2 {
		ours, err := n.Read()
		if err != nil || ours.Total != rss.Bytes(*theirs.MemTotalBytes) || ours.SwapTotal != rss.Bytes(*theirs.SwapTotalBytes) {
			t.Errorf("ours %+v, %v, theirs %d", ours, err, *theirs.MemTotalBytes)
		}
	}
}

func TestNodeKills(t *testing.T) {
	fs := rsstest.Empty(t)
	if _, ok := NodeKills(fs.Proc); ok {
		t.Error("read without a file")
	}
	for text, want := range map[string]uint64{"pgfault 9\noom_kill 3\nx 1\n": 3, "pgfault 9\n": 0, "oom_kill x\n": 0} {
		fs.Write("proc/vmstat", text)
		if kills, ok := NodeKills(fs.Proc); kills != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v", text, kills, ok)
		}
	}
}
