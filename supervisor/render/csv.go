package render

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// CSVHeader are the columns that [WriteCSV] writes. The table is tidy: a row is
// one thing at one moment of one run, and "kind" says what thing, so that a
// filter on it gives a table without holes:
//
//	process   one process: pid to extra, rss_bytes to fds
//	role      all processes of one role, of a journal: role, count, rss_bytes
//	          to shmem_bytes
//	limit     one limit: limit to size, eta_s
//
// Every row has time (RFC 3339 with milliseconds), elapsed_s since the start of
// its run, run, node and kind; what does not belong to a row's kind, or was not
// read, is empty. Sizes are in bytes, rounded down to KiB: pss_bytes is the last
// reading, some seconds old; used to working_set and size are counts where the
// limit is one (maps, fds, tasks). start is in clock ticks since boot, which
// with pid names a process for good; extra is 1 of a process that a limit counts
// beside the tree, and ours 1 of rsswarden's own.
var CSVHeader = []string{
	"time", "elapsed_s", "run", "node", "kind",
	"pid", "start", "comm", "role", "extra", "ours", "count",
	"rss_bytes", "anon_bytes", "file_bytes", "shmem_bytes", "pss_bytes", "maps", "fds",
	"limit", "scope", "accounting", "level", "used", "used_max", "charged", "working_set", "size", "eta_s",
}

// Columns of [CSVHeader] by name.
const (
	colTime = iota
	colElapsed
	colRun
	colNode
	colKind
	colPID
	colStart
	colComm
	colRole
	colExtra
	colOurs
	colCount
	colRSS
	colAnon
	colFile
	colShmem
	colPSS
	colMaps
	colFDs
	colLimit
	colScope
	colAccounting
	colLevel
	colUsed
	colUsedMax
	colCharged
	colWorkingSet
	colSize
	colETA
	columns
)

// WriteCSV writes every sample of the runs, one after the other, with
// [CSVHeader] as its first line (RFC 4180). Names hold no control characters, and one
// that a spreadsheet would take for a formula has an apostrophe in front.
func CSV(w io.Writer, runs []*record.Run) error {
	c := csv.NewWriter(w)
	if err := c.Write(CSVHeader); err != nil {
		return fmt.Errorf("cannot write csv: %w", err)
	}
	t := &csvTable{w: c}
	for _, r := range analysis.OneClock(analysis.Distinct(runs)) {
		if err := t.run(r); err != nil {
			return fmt.Errorf("cannot write csv of run %s: %w", r.Meta.ID, err)
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("cannot write csv: %w", err)
	}
	return nil
}

// csvTable writes rows. What stays the same of a process or limit is made once.
type csvTable struct {
	w      *csv.Writer
	row    [columns]string
	procs  [][columns]string
	limits [][columns]string
}

// cell is a text that somebody may have chosen: what begins like a formula is one to a
// spreadsheet, with functions that fetch and start things.
func safeCell(s string) string {
	s = chart.Clean(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

func (t *csvTable) run(r *record.Run) error {
	var base [columns]string
	base[colRun], base[colNode] = safeCell(r.Meta.ID), safeCell(r.Meta.Node)
	t.procs, t.limits = make([][columns]string, len(r.Procs)), make([][columns]string, len(r.Limits))
	for i := range r.Procs {
		p, row := &r.Procs[i], base
		row[colKind], row[colPID], row[colStart] = "process", strconv.Itoa(p.ID.PID), strconv.FormatUint(p.ID.Start, 10)
		row[colComm], row[colRole], row[colExtra], row[colOurs] = safeCell(p.Comm), safeCell(string(p.Role)), bit(p.Extra), bit(p.Ours)
		t.procs[i] = row
	}
	for i := range r.Limits {
		l, row := &r.Limits[i], base
		row[colKind], row[colLimit], row[colScope] = "limit", safeCell(string(l.Name)), safeCell(string(l.Scope))
		row[colAccounting], row[colLevel] = safeCell(string(l.Accounting)), safeCell(l.Level)
		t.limits[i] = row
	}
	for s := range r.Samples() {
		at := r.Wall(s.At).Format("2006-01-02T15:04:05.000Z07:00")
		elapsed := strconv.FormatFloat(float64(s.At/time.Millisecond)/1e3, 'f', 3, 64)
		for i := range s.Limits {
			if err := t.limit(&s.Limits[i], at, elapsed); err != nil {
				return err
			}
		}
		for i := range s.Procs {
			if err := t.process(&s.Procs[i], at, elapsed); err != nil {
				return err
			}
		}
		for i := range s.Roles {
			sum := &s.Roles[i]
			t.row = base
			t.row[colTime], t.row[colElapsed], t.row[colKind] = at, elapsed, "role"
			t.row[colRole], t.row[colCount], t.row[colRSS] = safeCell(string(sum.Role)), strconv.Itoa(sum.Count), size(sum.RSS)
			t.row[colAnon], t.row[colFile], t.row[colShmem] = size(sum.Anon), size(sum.File), size(sum.Shmem)
			if err := t.w.Write(t.row[:]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *csvTable) process(u *record.Usage, at, elapsed string) error {
	if u.Proc < 0 || u.Proc >= len(t.procs) {
		return nil
	}
	row := &t.procs[u.Proc]
	row[colTime], row[colElapsed] = at, elapsed
	row[colRSS], row[colAnon], row[colFile], row[colShmem] = size(u.RSS()), size(u.Anon), size(u.File), size(u.Shmem)
	row[colPSS], row[colMaps], row[colFDs] = size(u.PSS), strconv.Itoa(u.Maps), strconv.Itoa(u.FDs)
	for _, c := range []int{colPSS, colMaps, colFDs} {
		if row[c] == "0" {
			row[c] = ""
		}
	}
	return t.w.Write(row[:])
}

func (t *csvTable) limit(r *record.Reading, at, elapsed string) error {
	if r.Limit < 0 || r.Limit >= len(t.limits) {
		return nil
	}
	row := &t.limits[r.Limit]
	row[colTime], row[colElapsed] = at, elapsed
	row[colUsed], row[colUsedMax], row[colSize] = size(r.Used), size(r.UsedMax), size(r.Size)
	row[colCharged], row[colWorkingSet], row[colETA] = "", "", ""
	if r.Charged > 0 {
		row[colCharged], row[colWorkingSet] = size(r.Charged), size(r.WorkingSet)
	}
	if r.ETA >= 0 {
		row[colETA] = strconv.FormatFloat(r.ETA, 'f', 0, 64)
	}
	return t.w.Write(row[:])
}

func size(b rss.Bytes) string { return strconv.FormatUint(uint64(b), 10) }

func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
