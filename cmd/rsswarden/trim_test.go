package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/trim/once"
)

// TestTrimReport: what comes rarely, and names that steer terminals.
func TestTrimReport(t *testing.T) {
	resident := func(file rss.Bytes) *rss.Proc { return &rss.Proc{RSS: rss.GiB + file, File: file} }
	r := trimReport{Result: once.Result{
		Targets: []*once.Target{
			{ID: rss.ProcID{PID: 11}, Comm: "\x1b[31m\nx\ty", Planned: true, Mapped: 2 * rss.GiB, Before: resident(2 * rss.GiB), After: resident(rss.GiB),
				Pieces: 16, Stop: 1234 * time.Microsecond, Refused: trim.Slow},
			{ID: rss.ProcID{PID: 12}, Comm: "b", Planned: true, Mapped: rss.GiB, Before: resident(rss.GiB), Pieces: 3, Changed: 2, Refused: trim.Vanished},
			{ID: rss.ProcID{PID: 13}, Comm: "c", Refused: trim.Stranger, Detail: "of 7"},
			{ID: rss.ProcID{PID: 14}, Comm: "d", Planned: true, Mapped: rss.GiB},
		},
		Dropped: []once.DroppedFile{
			{Path: "/a\n", Dropped: trim.Dropped{Before: 2 * rss.GiB, Measured: true}},
			{Path: "/b", Dropped: trim.Dropped{Before: 2 * rss.GiB, After: rss.GiB, Measured: true}},
			{Path: "/c"},
			{Path: "/d", Err: errors.New("cannot drop /d: no such file")},
		},
		Signal: func() syscall.Signal { return syscall.SIGINT }}, trimOptions: trimOptions{drop: true},
	}
	var b strings.Builder
	r.forPeople(&b)
	golden.Check(t, "testdata/trim.txt", b.String())
	if hint := r.refusedHint(); !strings.Contains(hint, "rsswarden run --trim ptrace") {
		t.Errorf("hint %q", hint)
	}
}
