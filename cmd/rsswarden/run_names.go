package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// lastRun names the newest run, as in `report last`.
const lastRun = "last"

// loadRuns reads the runs that a user names by files, directories or a Slurm job; by
// nothing, the newest. The error is about those that could not be read.
func loadRuns(p process, args []string, askSlurmToo bool) ([]*record.Run, error) {
	found, err := findRuns(p, args, askSlurmToo)
	if err != nil {
		return nil, err
	}
	var many error
	if n := len(found) - maxRuns; n > 0 {
		found = found[:maxRuns]
		many = fmt.Errorf("the %d newest records are read, %d older ones are left out", maxRuns, n)
	}
	runs, err := readRuns(found)
	if len(args) < 2 {
		var other error
		runs, other = newestCluster(runs)
		many = errors.Join(many, other)
	}
	return runs, errors.Join(err, many)
}

// slurmOutput is the default name of a job's output.
const slurmOutput = `^slurm-([0-9]+(?:_[0-9]+)?)\.out$`

// findRuns finds what the arguments name. Those of one job belong together.
func findRuns(p process, args []string, askSlurmToo bool) (found []record.Found, err error) {
	if len(args) == 0 {
		all := record.Find(recordPlaces(p)...)
		if len(all) == 0 {
			return nil, usagef(lookedIn(recordPlaces(p), hintNoRecord), "no record was found")
		}
		return runsOfJob(all, all[0]), nil
	}
	for i, arg := range args {
		some, err := findRun(p, arg, askSlurmToo)
		if f := (*failure)(nil); i > 0 && errors.As(err, &f) && f.status == exitUsage {
			f.hint = "one run at a time, or the paths of records of one job"
		}
		if err != nil {
			return nil, err
		}
		for _, f := range some {
			found = withFound(found, f)
		}
	}
	return found, nil
}

// withFound adds to the list. A run may be named by its record and by its journal.
func withFound(list []record.Found, f record.Found) []record.Found {
	fits := func(a, b string) bool { return a == "" || b == "" || a == b }
	for i := range list {
		if o := &list[i]; o.ID == f.ID && fits(o.Record, f.Record) && fits(o.Journal, f.Journal) {
			o.Record, o.Journal = cmp.Or(o.Record, f.Record), cmp.Or(o.Journal, f.Journal)
			return list
		}
	}
	return append(list, f)
}

func findRun(p process, arg string, askSlurmToo bool) ([]record.Found, error) {
	hint := "rsswarden report lists runs; name one by its ID, its Slurm job or the path of its record"
	if arg == "" {
		return nil, usagef(hint, "the name of a record is empty; is a variable not set?")
	}
	f, err := record.At(arg)
	switch {
	case err == nil:
		return withOthers(p, []record.Found{f}), nil
	case errors.Is(err, record.ErrNone):
		return findIn(p, arg)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, notRead(fmt.Errorf("cannot read %s: %w", arg, errnoOf(err)))
	}
	list, silent, err := findByWord(p, arg, askSlurmToo)
	switch {
	case err != nil || len(list) > 0:
		return list, err
	case strings.Contains(arg, "/"):
		return nil, recordFailure(fmt.Errorf("cannot read %s: no such file or directory", arg), hint)
	}
	if m := regexp.MustCompile(slurmOutput).FindStringSubmatch(filepath.Base(arg)); m != nil {
		hint = "that is the name of a job's output; the job itself: " + programName + " report " + m[1]
	}
	said := ""
	if silent != nil {
		said, hint = "; "+silent.Error(), cmp.Or(silentHint(silent, arg), hint)
	}
	return nil, usagef(lookedIn(recordPlaces(p), hint), "no run %q found%s", arg, said)
}

// lookedIn is a hint, and the directories that were looked through, a line each.
func lookedIn(dirs []string, hint string) string {
	return hint + "\nlooked in " + strings.Join(listed(dirs), "\nlooked in ")
}

// those are the found ones that are meant.
func those(all []record.Found, meant func(record.Found) bool) (list []record.Found) {
	for _, f := range all {
		if meant(f) {
			list = append(list, f)
		}
	}
	return list
}

// runsNamed are what one job, one step or one run has left.
func runsNamed(all []record.Found, name string) []record.Found {
	return those(all, func(f record.Found) bool {
		return f.Job != "" && (f.Job == name || strings.HasPrefix(name, f.Job+".")) || f.ID == name
	})
}

// runsOfJob are the runs of one job, or one run outside Slurm.
func runsOfJob(all []record.Found, one record.Found) []record.Found {
	if one.Job == "" {
		return []record.Found{one}
	}
	return those(all, func(f record.Found) bool { return f.Job == one.Job })
}

// findIn finds the newest job in a directory.
func findIn(p process, dir string) ([]record.Found, error) {
	all := record.Find(recordDirs(dir)...)
	if len(all) == 0 {
		if err := whyUnreadable(dir); err != nil {
			return nil, notRead(fmt.Errorf("cannot read records in %s: %w", dir, err))
		}
		return nil, usagef("name the directory of --record, or one with .rsswarden in it", "no record in %s", dir)
	}
	return withOthers(p, runsOfJob(all, all[0])), nil
}

// withOthers finds the records of journals, and the journals of records. It looks through
// each directory once.
func withOthers(p process, list []record.Found) []record.Found {
	dirs := recordPlaces(p)
	for _, f := range list {
		dirs = append(dirs, filepath.Dir(f.Record), filepath.Dir(f.Journal))
	}
	slices.Sort(dirs)
	others := map[string]record.Found{}
	for _, o := range record.Find(slices.Compact(dirs)...) {
		others[o.ID] = o
	}
	for i := range list {
		o := others[list[i].ID]
		list[i].Record = cmp.Or(list[i].Record, o.Record)
		list[i].Journal = cmp.Or(list[i].Journal, o.Journal)
	}
	return list
}

// mostRead bounds the runs without a line in an index that are read for a list.
const mostRead = 1024

// runsKnown are the runs that left something in some directories.
type runsKnown struct {
	list  []analysis.ListedRun
	found []record.Found
	bare  map[string]record.Found // those of which no index has the end, by ID
	index record.Index
	boot  string
}

// knownRuns finds runs by the names of files and the lines of indexes: of what has no line,
// job, node and start alone.
func knownRuns(dirs []string) runsKnown {
	k, entries := gatherRuns(dirs)
	k.list = analysis.ListRuns(entries)
	return k
}

// gatherRuns is knownRuns without the list: the runs are in no order, each rank a run.
func gatherRuns(dirs []string) (runsKnown, []record.IndexEntry) {
	boot, _ := procfile.Read("/proc/sys/kernel/random/boot_id", procfile.Small)
	k := runsKnown{
		found: record.Find(dirs...), bare: map[string]record.Found{}, index: record.ReadIndex(dirs...), boot: strings.TrimSpace(string(boot)),
	}
	for _, f := range k.found {
		k.bare[f.ID] = f
	}
	entries, listed := k.index.Entries, map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if listed[e.ID] = true; e.Outcome != event.RunRunning {
			delete(k.bare, e.ID)
		} else if !k.lives(e.Watcher) {
			e.Outcome = ""
		}
	}
	for id := range k.bare {
		if !listed[id] {
			entries = append(entries, record.EntryOfID(id))
		}
	}
	return k, entries
}

// lives says that a process still runs on this node.
func (k *runsKnown) lives(w record.Watcher) bool {
	return w.BootID != "" && w.BootID == k.boot && proctree.Lives("/proc", w.ProcID)
}

// read reads the runs of some rows of which no index has the end. What cannot be read keeps
// what its name and its first line say.
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
	for _, r := range runs {
		if i, ok := at[r.Meta.ID]; ok {
			short, ranks := rows[i].Short, rows[i].Ranks
			alive := rows[i].Outcome == event.RunRunning || rows[i].Watcher.PID == 0 && k.lives(record.Watcher{ProcID: r.Meta.Process, BootID: r.Meta.BootID})
			e := analysis.Entry(r, alive, now)
			if rows[i].User != "" {
				e.User = rows[i].User // by its first line
			} else if e.User == strconv.Itoa(os.Geteuid()) && p.get("USER") != "" {
				e.User = p.get("USER")
			}
			e.Short = short
			rows[i] = analysis.ListedRun{IndexEntry: e, Ranks: ranks}
		}
	}
	for i := range rows {
		switch r := &rows[i]; {
		case r.Outcome == "":
			r.Outcome = event.RunUnknown
		case r.Outcome == event.RunRunning:
			r.Seconds = math.Round(now.Sub(r.Start).Seconds())
		}
	}
}

// named are the runs that a word names: the last, those of a job, or by the beginning of a
// short name.
func (k *runsKnown) named(word string) (list []analysis.ListedRun, short bool) {
	of := func(job, word string) bool { return job != "" && (job == word || strings.HasPrefix(word, job+".")) }
	for _, r := range k.list {
		if word == lastRun || r.ID == word || of(r.Job, word) || of(r.Array, word) {
			if list = append(list, r); word == lastRun {
				break
			}
		}
	}
	if len(list) > 0 || !record.IsShort(word) {
		return list, false
	}
	for _, r := range k.list {
		if strings.HasPrefix(record.Label(r.ID), word) {
			list = append(list, r)
		}
	}
	return list, true
}

// ambiguous refuses a short name that several runs have.
func ambiguous(word string, list []analysis.ListedRun) error {
	const most = 6
	var names []string
	for _, r := range list[:min(len(list), most)] {
		names = append(names, fmt.Sprintf("%s (%s, %s)", r.Short, r.Start.Local().Format("Jan 2 15:04"), oneLine(analysis.ShortCommand(r.Command))))
	}
	return usagef("rsswarden report "+strings.Join(names, " or "), "%d runs have IDs that begin with %q", len(list), word)
}

// unrecorded is the error where there is no record to read, with what can be shown all the
// same: lines of the list, or what Slurm says.
type unrecorded struct {
	*failure
	show func(asJSON bool) error
}

func (e *unrecorded) Unwrap() error { return e.failure }

// noRecord is that error.
func noRecord(show func(asJSON bool) error, format string, args ...any) *unrecorded {
	return &unrecorded{&failure{error: fmt.Errorf(format, args...), hint: hintNoRecord, status: exitUsage}, show}
}

// findByWord finds what a word names that is no path: a job, a step, a run by its short name
// or the last. It asks Slurm about a job of which nothing is here; silent is why Slurm did not say.
func findByWord(p process, word string, askSlurmToo bool) (list []record.Found, silent, err error) {
	known := knownRuns(recordPlaces(p))
	if list = runsNamed(known.found, word); len(list) > 0 && word != lastRun {
		return list, nil, nil
	}
	runs, short := known.named(word)
	if short && len(runs) > 1 {
		return nil, nil, ambiguous(word, runs)
	}
	for _, r := range runs {
		name := r.ID
		if r.Job != "" && r.Ranks > 1 {
			name = r.Job
		}
		list = append(list, runsNamed(known.found, name)...)
	}
	switch {
	case len(list) > 0:
		return list, nil, nil
	case len(runs) > 0:
		return nil, nil, noRecord(func(asJSON bool) error { return showListed(p, &known, runs, asJSON) }, "run %s left no record", runs[0].Short)
	}
	number, step, _ := strings.Cut(word, ".")
	if !askSlurmToo || !slurm.IsJob(number) {
		return nil, nil, nil
	}
	job, err := askSlurm(slurm.Ended, number)
	if err != nil {
		return nil, err, nil
	}
	// Of an array task, 12_3, records have the number. The job may have run in another directory.
	list = runsNamed(known.found, job.ID)
	if filepath.IsAbs(job.Dir) {
		list = append(list, those(record.Find(filepath.Join(job.Dir, ".rsswarden")), func(f record.Found) bool { return f.Job == job.ID })...)
	}
	if len(list) > 0 {
		return list, nil, nil
	}
	u, ok := analysis.OfSlurm(job, step)
	if !ok {
		return nil, nil, usagef(stepsOf(&job), "%s knows no step %q of job %s", job.Source, step, number)
	}
	e := noRecord(func(asJSON bool) error {
		return show(p, asJSON, u, func(w io.Writer, style text.Style) error { return render.Unwrapped(w, u, recordPlaces(p), style) })
	}, "job %s left no record here; %s says that it is %s, exit code %s", word, job.Source, job.State, job.ExitCode)
	e.hint = "it did not run under rsswarden, or not here; rsswarden report " + word + " shows what Slurm knows"
	return nil, nil, e
}

// stepsOf is a hint with the steps that Slurm knows of a job.
func stepsOf(job *slurm.EndedJob) string {
	var names []string
	for i := range job.Steps {
		_, name, _ := strings.Cut(job.Steps[i].ID, ".")
		names = append(names, name)
	}
	if len(names) == 0 {
		return programName + " report " + job.ID + " shows what is known of the job"
	}
	return "it has " + text.List(names, 8)
}

// silentHint is what to do where Slurm did not say how a job ended, empty where nothing about Slurm.
func silentHint(err error, job string) string {
	switch said := err.Error(); {
	case errors.Is(err, slurm.ErrNoJob):
		return "check the number; Slurm forgets jobs after a time that the site chooses, and may hide those of others"
	case errors.Is(err, exec.ErrNotFound):
		return "Slurm's commands are not in PATH: ask where they are, such as on a login node"
	case strings.Contains(said, "storage is disabled"):
		return "this site keeps no accounting, and Slurm forgets a job minutes after its end"
	case strings.Contains(said, "configuration source"): // its commands are here, and no Slurm
		return ""
	}
	return "Slurm's accounting does not answer: try again later; sacct -j " + job + " says more"
}

// showListed shows what the list has of runs: of one as a report, of more as a list.
func showListed(p process, known *runsKnown, runs []analysis.ListedRun, asJSON bool) error {
	known.read(p, runs)
	list := analysis.RunList{V: analysis.Version, Total: len(runs), Runs: runs}
	return show(p, asJSON, list, func(w io.Writer, style text.Style) error {
		if len(runs) > 1 {
			return render.RunList(w, list, style, time.Now())
		}
		return render.Listed(w, runs[0], style)
	})
}
