package cgroup2

import (
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
		Files: map[string]string{"/guest/scene": scene}, DiskMB: 300, Timeout: 5 * time.Minute,
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
