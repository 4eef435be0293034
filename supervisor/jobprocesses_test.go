package supervisor

import (
	"fmt"
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestJobProcesses(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	in := fmt.Sprintf(v2, "46", "0")
	n.makeDirs(in, os.Getuid())
	n.put(20, 1, "slurmstepd", in)
	n.put(21, 20, "python", in)
	n.put(22, 21, "python", in)
	n.put(30, 20, "rsswarden", in)
	n.put(31, 30, "sh", in)
	n.put(40, 1, "python", fmt.Sprintf(v2, "47", "0"))
	ids, err := JobProcesses(n.Proc, n.Sys, "46", 30)
	if err != nil || len(ids) != 2 || ids[0].PID != 21 || ids[1].PID != 22 || ids[0].Start != 21 {
		t.Errorf("%v, %v", ids, err)
	}
	if ids, err := JobProcesses(n.Proc, n.Sys, "48", 30); err != nil || len(ids) > 0 {
		t.Errorf("of no job: %v, %v", ids, err)
	}
	if _, err := JobProcesses(n.Proc+"/none", n.Sys, "46", 30); err == nil {
		t.Error("without proc: no error")
	}
}
