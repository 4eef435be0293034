package render

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// CSVHeader are the columns that [CSV] writes. The table is tidy: a row is
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

// CSV writes every sample of the runs, one after the other, with
// [CSVHeader] as its first line (RFC 4180). Names hold no control characters, and one
// that a spreadsheet would take for a formula has an apostrophe in front.
func CSV(w io.Writer, runs []*record.Run) error {
	c := csv.NewWriter(w)
	if err := c.Write(CSVHeader); err != nil {
		return fmt.Errorf("cannot write csv: %w", err)
	}
	t := &csvTable{w: c}
	for _, r := range analysis.AlignClocks(analysis.Distinct(runs)) {
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

// Where columns of [CSVHeader] begin.
const (
	kindColumn  = 4
	procColumn  = 5
	roleColumn  = 8
	limitColumn = 19
)

// csvTable writes rows. What stays the same of a process or limit is made once.
type csvTable struct {
	w             *csv.Writer
	row           []string
	procs, limits [][]string
}

// write puts a row, of which the first columns are those of the sample.
func (t *csvTable) write(kind string, from int, of []string, values ...string) error {
	clear(t.row[kindColumn:])
	t.row[kindColumn] = kind
	copy(t.row[from:], of)
	copy(t.row[from+len(of):], values)
	return t.w.Write(t.row)
}

// safeCell is a text that another user may have chosen, as a cell: what begins like a formula
// is one to a spreadsheet, with functions that fetch and start things.
func safeCell(s string) string {
	s = values.Plain(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

func (t *csvTable) run(r *record.Run) error {
	t.procs, t.limits = make([][]string, len(r.Procs)), make([][]string, len(r.Limits))
	for i := range r.Procs {
		p := &r.Procs[i]
		t.procs[i] = []string{strconv.Itoa(p.ID.PID), strconv.FormatUint(p.ID.Start, 10), safeCell(p.Comm), safeCell(string(p.Role)), bit(p.Extra), bit(p.Ours), ""}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		t.limits[i] = []string{safeCell(string(l.Name)), safeCell(string(l.Scope)), safeCell(string(l.Accounting)), safeCell(l.Level)}
	}
	t.row = make([]string, len(CSVHeader))
	t.row[2], t.row[3] = safeCell(r.Meta.ID), safeCell(r.Meta.Node)
	for s := range r.Samples() {
		t.row[0] = r.Wall(s.At).Format("2006-01-02T15:04:05.000Z07:00")
		t.row[1] = strconv.FormatFloat(float64(s.At/time.Millisecond)/1e3, 'f', 3, 64)
		if err := t.sample(s); err != nil {
			return err
		}
	}
	return nil
}

func (t *csvTable) sample(s *record.Sample) error {
	var errs []error
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit < 0 || r.Limit >= len(t.limits) {
			continue
		}
		charged, working, eta := "", "", ""
		if r.Charged > 0 {
			charged, working = size(r.Charged), size(r.WorkingSet)
		}
		if r.ETA >= 0 {
			eta = strconv.FormatFloat(r.ETA, 'f', 0, 64)
		}
		errs = append(errs, t.write("limit", limitColumn, t.limits[r.Limit], size(r.Used), size(r.UsedMax), charged, working, size(r.Size), eta))
	}
	for i := range s.Procs {
		if u := &s.Procs[i]; u.Proc >= 0 && u.Proc < len(t.procs) {
			errs = append(errs, t.write("process", procColumn, t.procs[u.Proc], size(u.RSS()), size(u.Anon), size(u.File), size(u.Shmem),
				read(uint64(u.PSS)), read(uint64(u.Maps)), read(uint64(u.FDs))))
		}
	}
	for i := range s.Roles {
		sum := &s.Roles[i]
		errs = append(errs, t.write("role", roleColumn, []string{safeCell(string(sum.Role)), "", "", strconv.Itoa(sum.Count)},
			size(sum.RSS), size(sum.Anon), size(sum.File), size(sum.Shmem)))
	}
	return errors.Join(errs...)
}

// read is a number that is 0 where it was not read.
func read(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}

func size(b rss.Bytes) string { return strconv.FormatUint(uint64(b), 10) }

func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
