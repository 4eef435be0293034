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
	found []record.Found
	bare  map[string]record.Found // those without a line in an index, by ID
	index record.Index
}

// knownRuns finds runs by the names of files and the lines of indexes: of what has no line,
// job, node and start alone.
func knownRuns(dirs []string) runsKnown {
	k := runsKnown{found: record.Find(dirs...), bare: map[string]record.Found{}, index: record.ReadIndex(dirs...)}
	for _, f := range k.found {
		k.bare[f.ID] = f
	}
	for i := range k.index.Entries {
		delete(k.bare, k.index.Entries[i].ID)
	}
	entries := k.index.Entries
	for id := range k.bare {
		entries = append(entries, record.EntryOfID(id))
	}
	k.list = analysis.ListRuns(entries)
	return k
}

// read reads the runs of some rows that have no line in an index. What cannot be read keeps
// what its name says.
func (k *runsKnown) read(p process, rows []analysis.ListedRun) {
	var missing []record.Found
	at := map[string]int{}
	for i := range rows {
		f, ok := k.bare[rows[i].ID]
		if !ok || len(missing) == mostRead {
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
	named, places, err := placesOf(p, dirs)
	if err != nil {
		return err
	}
	known := knownRuns(places)
	switch {
	case len(known.list) > 0:
	case known.index.Err != nil:
		return notRead(known.index.Err)
	default:
		return usagef("a run is listed when it ends: rsswarden run -- COMMAND; or name a directory of --record, or one with .rsswarden in it", "no run is listed in %s", listed(named))
	}
	for _, d := range known.index.Damage {
		p.warn(oneLine(d))
	}
	if known.index.Err != nil {
		p.warn(sentences(known.index.Err.Error()))
	}
	now := time.Now()
	rows := known.list
	if o.since > 0 {
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Start.Before(now.Add(-o.since)) })
	}
	if o.outcome != "" || o.by != "" {
		known.read(p, rows)
	}
	if o.outcome != "" {
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Outcome != o.outcome })
	}
	total := len(rows)
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

// placesOf are the directories in and below those that a user names, which may be read; by none
// all that are known here, which are the named ones then.
func placesOf(p process, dirs []string) (named, places []string, err error) {
	if len(dirs) == 0 {
		places = recordPlaces(p)
		return places, places, nil
	}
	for _, dir := range dirs {
		_, err := record.ReadDir(dir)
		switch {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, nodedir.ErrLink):
			return nil, nil, notRead(fmt.Errorf("cannot read runs in %s: %w", dir, errnoOf(err)))
		case err != nil:
			return nil, nil, usagef("name directories in which runs have left records; one run is shown by rsswarden report ID", "cannot read runs in %s: %v", dir, errnoOf(err))
		}
		places = append(places, recordDirs(dir)...)
	}
	return dirs, places, nil
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
