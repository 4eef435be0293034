package supervisor

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRanksEndTogether: two ranks end before the third, the successor, begins to lead, and
// then that ends too. All ends are in its record.
func TestRanksEndTogether(t *testing.T) {
	dir, submit := runtimeDir(t), t.TempDir()
	const n = 3
	var all []*stand
	for i := range n {
		s := newStand(t, inJob(t, i, dir, "SLURM_SUBMIT_DIR="+submit, "HOME="+submit))
		s.holder.begin.Holder = theHolder + 500*i
		all = append(all, s)
	}
	for i := range n {
		for _, s := range all {
			s.fs.Put(rsstest.Process{PID: theHolder + 500*i, Parent: 1, Start: 4, Comm: "rsswarden"})
		}
		all[i].join(all[i].holder.begin)
		if led := all[i].node.Leads(); led != (i == 0) {
			t.Fatalf("rank %d leads: %v", i, led)
		}
	}
	last := all[n-1]
	run := &last.tell.Run
	run.Begun = time.Now()
	last.Settings.Record, run.ID = t.TempDir(), record.NewID(run.Begun, nil, "n1", 1)
	all[1].end(&hold.Exit{Signal: 9})
	all[0].pass(&hold.Exit{})
	last.fs.End(theHolder)
	last.fs.End(theHolder + 500)
	last.isGivenTheLead()
	last.end(&hold.Exit{Code: 3})

	journals, err := filepath.Glob(submit + "/.rsswarden/2*.jsonl")
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %q, %v", journals, err)
	}
	kept, err := record.ReadJournal(journals[0])
	wardentest.NoError(t, err)
	var told []string
	for _, e := range kept.Events {
		switch e := e.Value.(type) {
		case *event.Rank:
			text := fmt.Sprintf("%s %d", e.What, e.Task)
			if e.Signal != nil {
				text += " " + *e.Signal
			}
			told = append(told, text)
		case *event.Exit:
			told = append(told, fmt.Sprintf("exit %d", *e.Code))
		}
	}
	if got := fmt.Sprint(told); got != "[leads 2 ended 1 SIGKILL exit 3]" {
		t.Errorf("told %s", got)
	}
}
