package workers

import (
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// ranksIn reads what /proc/PID/environ would hold.
func ranksIn(t testing.TB, environ string) ranks {
	t.Helper()
	fs := rsstest.Empty(t)
	fs.Write("proc/7/environ", environ)
	vars, err := proctree.Environ(fs.Proc, 7, isRank)
	wardentest.NoError(t, err)
	return ranksOf(vars)
}

func TestRanks(t *testing.T) {
	for in, want := range map[string]ranks{
		"": noRanks,
		"A=1\x00RANK=3\x00LOCAL_RANK=1\x00SLURM_PROCID=0\x00": {3, 1, 0},
		"RANK=0":                         {0, -1, -1},
		"RANK=\x00LOCAL_RANK=x\x00":      noRanks,
		"RANK=-1\x00":                    noRanks,
		"RANK=4294967296\x00":            noRanks,
		"RANK\x00XRANK=1\x00RANK =1\x00": noRanks,
		"RANK=1\x00RANK=2\x00":           {1, -1, -1}, // getenv takes the first
	} {
		if got := ranksIn(t, in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	if got := ranksOf(nil); got != noRanks {
		t.Errorf("of what cannot be read: %v", got)
	}
}

func FuzzRanks(f *testing.F) {
	f.Add("3", "1", "")
	f.Fuzz(func(t *testing.T, rank, local, task string) {
		r := ranksOf(map[string]string{rankVariable: rank, localVariable: local, taskVariable: task})
		if r.rank < -1 || r.local < -1 || r.task < -1 {
			t.Errorf("%q, %q, %q: %v", rank, local, task, r)
		}
	})
}

func TestRankZero(t *testing.T) {
	for r, want := range map[ranks][2]bool{ // zero, known
		noRanks:     {true, false},
		{0, 0, 0}:   {true, true},
		{4, 0, 0}:   {false, true}, // the first of its node
		{0, -1, 7}:  {true, true},
		{-1, 0, -1}: {true, true},
		{-1, 1, 0}:  {false, true}, // one of several in a task
		{-1, -1, 0}: {true, true},
		{-1, 0, 3}:  {false, true},
	} {
		zero, known := r.zero()
		if known != want[1] || known && zero != want[0] {
			t.Errorf("%v: zero %v, known %v", r, zero, known)
		}
	}
}

func TestEnvironReader(t *testing.T) {
	k := newEnvironReader("/proc")
	procs := []rss.Proc{{ID: rss.ProcID{PID: os.Getpid(), Start: 1}, Comm: "test"}, {ID: rss.ProcID{PID: 1<<22 + 1, Start: 1}}}
	if _, known := k.of(&procs[0]); known {
		t.Error("known before it was asked")
	}
	now := time.Duration(0)
	wardentest.Until(t, "both are read", func() bool {
		k.update(&rss.Sample{Mono: now, Procs: procs})
		now += time.Second
		_, here := k.of(&procs[0])
		r, there := k.of(&procs[1])
		if r != noRanks {
			t.Errorf("a process that is gone has %v", r)
		}
		return here && there
	})
	exec := procs[0]
	exec.Comm = "other"
	if _, known := k.of(&exec); known {
		t.Error("another program in the same process is known already")
	}
	k.update(&rss.Sample{Mono: time.Hour})
	if len(k.seen) != 0 {
		t.Errorf("%d processes that are gone are remembered", len(k.seen))
	}
}
