package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// TestTrimReport: what comes rarely, and names that steer terminals.
func TestTrimReport(t *testing.T) {
	resident := func(file rss.Bytes) *proctree.Resident { return &proctree.Resident{RSS: rss.GiB + file, File: file} }
	r := trimReport{
		processes: []*trimmed{
			{id: rss.ProcID{PID: 11}, comm: "\x1b[31m\nx\ty", planned: true, mapped: 2 * rss.GiB, before: resident(2 * rss.GiB), after: resident(rss.GiB),
				pieces: 16, stop: 1234 * time.Microsecond, refused: trim.Slow},
			{id: rss.ProcID{PID: 12}, comm: "b", planned: true, mapped: rss.GiB, before: resident(rss.GiB), pieces: 3, changed: 2, refused: trim.Vanished},
			{id: rss.ProcID{PID: 13}, comm: "c", refused: trim.Stranger, detail: "of 7"},
			{id: rss.ProcID{PID: 14}, comm: "d", planned: true, mapped: rss.GiB},
		},
		dropped: []droppedFile{
			{mappedFile{11, trim.Mapping{Path: "/a\n"}}, trim.Dropped{Before: 2 * rss.GiB, Measured: true}, nil},
			{mappedFile{11, trim.Mapping{Path: "/b"}}, trim.Dropped{Before: 2 * rss.GiB, After: rss.GiB, Measured: true}, nil},
			{mappedFile{11, trim.Mapping{Path: "/c"}}, trim.Dropped{}, nil},
			{mappedFile{11, trim.Mapping{Path: "/d"}}, trim.Dropped{}, errors.New("cannot drop /d: no such file")},
		},
		cut: true, trimOptions: trimOptions{drop: true},
	}
	var b strings.Builder
	r.forPeople(&b)
	const want = `PID  COMMAND    MAPPED, RESIDENT  GAVE BACK  LONGEST STOP  NOTE
11   �[31m x y  2.00 GiB          1.00 GiB   1.2 ms        not all of it: its threads did not stop in time
12   b          1.00 GiB          -          0.0 ms        not all of it: process has ended; 2 pieces of it were mapped otherwise by then
13   c          -                 -          -             not a descendant, and Yama allows no other (ptrace_scope 1) (of 7)
14   d          1.00 GiB          -          -
1.00 GiB given back in all
2.00 GiB of /a  left the page cache and will be read again from disk
1.00 GiB of /b left the page cache and will be read again from disk; 1.00 GiB stay: mapped elsewhere, or not written back
/c was dropped from the page cache, where nobody maps it; how much left is not measured (the kernel tells its owner, since Linux 6.5)
cannot drop /d: no such file
a signal ended it before all was done
`
	if got := b.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if hint := r.hint(); !strings.Contains(hint, "rsswarden run --trim ptrace") {
		t.Errorf("hint %q", hint)
	}
}

// TestTrimHelpFits a terminal.
func TestTrimHelpFits(t *testing.T) {
	c := trimCommand(process{})
	for l := range strings.Lines(helpOf(c)) {
		if len(l) > 81 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
}
