package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// mostListed is how many runs are listed where no time is given.
	mostListed = 15
	// mostRead bounds the runs without a line in an index that are read for a list.
	mostRead = 1024
)

// listOptions say which runs are listed, and how.
type listOptions struct {
	since   time.Duration // 0 for any time
	outcome event.RunOutcome
	by      string
	json    bool
}

// runsKnown are the runs that left something in some directories.
type runsKnown struct {
	list  []analysis.ListedRun
	found map[string]record.Found // by ID
	bare  map[string]bool         // IDs of those without a line in an index
	index record.Index
}

// knownRuns finds runs by the names of files and the lines of indexes: of what has no line,
// job, node and start alone.
func knownRuns(dirs []string) runsKnown {
	k := runsKnown{found: map[string]record.Found{}, bare: map[string]bool{}, index: record.ReadIndex(dirs...)}
	entries := k.index.Entries
	for i := range entries {
		k.bare[entries[i].ID] = false
	}
	for _, f := range record.Find(dirs...) {
		k.found[f.ID] = f
		if _, listed := k.bare[f.ID]; !listed {
			k.bare[f.ID] = true
			entries = append(entries, record.EntryOfID(f.ID))
		}
	}
	k.list = analysis.ListRuns(entries)
	return k
}

// warn says what of the indexes could not be read.
func (k *runsKnown) warn(p process) {
	for _, d := range k.index.Damage {
		p.warn(oneLine(d))
	}
	if k.index.Err != nil {
		p.warn(sentences(k.index.Err.Error()))
	}
}

// read reads the runs of some rows that have no line in an index. What cannot be read keeps
// what its name says.
func (k *runsKnown) read(p process, rows []analysis.ListedRun) {
	var missing []record.Found
	at := map[string]int{}
	for i := range rows {
		f, ok := k.found[rows[i].ID]
		if !ok || !k.bare[f.ID] || len(missing) == mostRead {
			continue
		}
		if f.Journal != "" {
			f.Record = "" // it is small, and says as much
		}
		at[f.ID] = i
		missing = append(missing, f)
	}
	runs, _ := readRuns(missing)
	now := time.Now()
	boot, _ := procfile.Read("/proc/sys/kernel/random/boot_id", procfile.Small)
	for _, r := range runs {
		if i, ok := at[r.Meta.ID]; ok {
			short, ranks := rows[i].Short, rows[i].Ranks
			here := r.Meta.BootID != "" && r.Meta.BootID == strings.TrimSpace(string(boot))
			e := analysis.Entry(r, here && proctree.Lives("/proc", r.Meta.Process), now)
			if e.User == strconv.Itoa(os.Geteuid()) && p.get("USER") != "" {
				e.User = p.get("USER")
			}
			e.Short = short
			rows[i] = analysis.ListedRun{IndexEntry: e, Ranks: ranks}
		}
	}
	for i := range rows {
		if rows[i].Outcome == "" {
			rows[i].Outcome = event.RunUnknown
		}
	}
}

// listRuns prints past runs: those of some directories, or all that are known here.
func listRuns(p process, dirs []string, o listOptions) error {
	places := recordPlaces(p)
	if len(dirs) > 0 {
		places = nil
		for _, d := range dirs {
			if err := checkListed(d); err != nil {
				return err
			}
			places = append(places, recordDirs(d)...)
		}
	}
	known := knownRuns(places)
	if len(known.list) == 0 {
		switch {
		case known.index.Err != nil:
			return notRead(known.index.Err)
		case len(dirs) > 0:
			return usagef("name a directory in which runs have left records: that of --record, or one with .rsswarden in it", "no run is listed in %s", listed(dirs))
		}
		return usagef("a run is listed when it ends: rsswarden run -- COMMAND", "no run is listed in %s", listed(places))
	}
	known.warn(p)
	now := time.Now()
	rows := known.list
	if o.since > 0 {
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Start.Before(now.Add(-o.since)) })
	}
	total := len(rows)
	if o.outcome != "" || o.by != "" {
		known.read(p, rows)
	}
	if o.outcome != "" {
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Outcome != o.outcome })
		total = len(rows)
	}
	if o.by != "" {
		fleet := analysis.FleetOf(rows, o.by)
		return show(p, o.json, fleet, func(w io.Writer, style text.Style) error { return render.Fleet(w, fleet, style) })
	}
	if o.since == 0 {
		rows = rows[:min(len(rows), mostListed)]
	}
	known.read(p, rows)
	list := analysis.RunList{V: analysis.Version, Total: total, Runs: rows}
	return show(p, o.json, list, func(w io.Writer, style text.Style) error { return render.RunList(w, list, style, now) })
}

// checkListed refuses what is no directory, or may not be read.
func checkListed(dir string) error {
	_, err := record.ReadDir(dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, nodedir.ErrLink):
		return notRead(fmt.Errorf("cannot read runs in %s: %w", dir, errnoOf(err)))
	}
	return usagef("name directories in which runs have left records; one run is shown by rsswarden report ID", "cannot read runs in %s: %v", dir, errnoOf(err))
}

// parseSince reads a time back from now: "7d", "36h", "2w".
func parseSince(s string) (time.Duration, error) {
	const hint = "write a number and a unit: 12h, 7d or 4w"
	units := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	if s != "" {
		if unit, ok := units[s[len(s)-1]]; ok {
			if n, err := strconv.ParseUint(s[:len(s)-1], 10, 16); err == nil && n > 0 {
				return time.Duration(n) * unit, nil
			}
		}
	}
	return 0, usagef(hint, "--since %q is not a length of time", s)
}

// parseOutcome reads a word of the closed list.
func parseOutcome(s string) (event.RunOutcome, error) {
	words := make([]string, len(event.RunOutcomes))
	for i, o := range event.RunOutcomes {
		words[i] = string(o)
	}
	return event.RunOutcome(s), usageOf("--outcome", oneOf(s, words...))
}
