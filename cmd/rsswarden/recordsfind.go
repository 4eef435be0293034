package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// This file finds the records that a user names.

// findRuns finds what the arguments name. Those of one job belong together.
func findRuns(p process, args []string) ([]record.Found, error) {
	if len(args) == 0 {
		all := record.Find(recordPlaces(p)...)
		if len(all) == 0 {
			return nil, usagef(hintNoRecord, "no record was found in %s", listed(recordPlaces(p)))
		}
		return sameJob(all, all[0]), nil
	}
	var found []record.Found
	for _, arg := range args {
		some, err := findRun(p, arg)
		if err != nil {
			return nil, err
		}
		for _, f := range some {
			found = withFound(found, f)
		}
	}
	return found, nil
}

// withFound adds what was found to the list. A run may be named twice, once by its
// record and once by its journal.
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

func findRun(p process, arg string) ([]record.Found, error) {
	const hint = "name a record's path, or a Slurm job where it was submitted from"
	if arg == "" {
		return nil, usagef(hint, "the name of a record is empty; is a variable not set?")
	}
	f, err := record.At(arg)
	switch {
	case err == nil:
		return []record.Found{withOther(p, f)}, nil
	case errors.Is(err, record.ErrNone):
		return findIn(p, arg)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, notRead(fmt.Errorf("cannot read %s: %w", arg, plain(err)))
	}
	list := recordsOf(p, arg)
	if len(list) == 0 && strings.Contains(arg, "/") {
		return nil, &recordError{fmt.Errorf("cannot read %s: %w", arg, plain(err)), hint}
	}
	word := ""
	if len(list) == 0 {
		if job, err := endedJob(arg); err == nil {
			// Of an array task, 12_3, records have the number.
			list = recordsOf(p, job.ID)
			word = fmt.Sprintf("; %s says that the job is %s, exit code %s", job.Source, job.State, job.ExitCode)
		}
	}
	if len(list) == 0 {
		if m := slurmOutput.FindStringSubmatch(filepath.Base(arg)); m != nil {
			return nil, usagef("that is the name of a job's output; the job itself: "+programName+" report "+m[1], "no record of %q in %s", arg, listed(recordPlaces(p)))
		}
		return nil, usagef(hint, "no record of %q in %s%s", arg, listed(recordPlaces(p)), word)
	}
	return list, nil
}

// recordsOf finds what one job, one step or one run has left.
func recordsOf(p process, name string) []record.Found {
	var list []record.Found
	for _, f := range record.Find(recordPlaces(p)...) {
		if f.Job != "" && (f.Job == name || strings.HasPrefix(name, f.Job+".")) || f.ID == name {
			list = append(list, f)
		}
	}
	return list
}

// findIn finds the newest job in a directory.
func findIn(p process, dir string) ([]record.Found, error) {
	all := record.Find(below(dir)...)
	if len(all) == 0 {
		if err := closed(dir); err != nil {
			return nil, notRead(fmt.Errorf("cannot read records in %s: %w", dir, err))
		}
		return nil, usagef("name the directory of --record, or one with .rsswarden in it", "no record in %s", dir)
	}
	return withOthers(p, sameJob(all, all[0])), nil
}

// below are the directories in which records may lie that a user means by dir.
func below(dir string) []string {
	return []string{dir, filepath.Join(dir, ".rsswarden"), filepath.Join(dir, "records"), filepath.Join(dir, "journals")}
}

// closed says why nothing is found in a directory where something may be: the
// directory, or a record in it, is somebody else's.
func closed(dir string) error {
	entries, err := record.ReadDir(dir)
	if err != nil {
		return plain(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if _, err := record.ReadDir(filepath.Join(dir, e.Name())); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", e.Name(), plain(err))
		}
	}
	return nil
}

// listed names directories, and those that this user may not look into.
func listed(dirs []string) string {
	var names []string
	for _, d := range dirs {
		if _, err := record.ReadDir(d); errors.Is(err, fs.ErrPermission) {
			d += " (" + plain(err).Error() + ")"
		}
		names = append(names, d)
	}
	return strings.Join(names, ", ")
}

// withOther finds the record of a journal, and the journal of a record.
func withOther(p process, f record.Found) record.Found {
	return withOthers(p, []record.Found{f})[0]
}

// withOthers does so for several, and looks through each directory once.
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

// sameJob are the runs of one job, or one run outside Slurm.
func sameJob(all []record.Found, one record.Found) []record.Found {
	if one.Job == "" {
		return []record.Found{one}
	}
	var list []record.Found
	for _, f := range all {
		if f.Job == one.Job {
			list = append(list, f)
		}
	}
	return list
}

// recordPlaces are the directories that are looked through.
func recordPlaces(p process) []string {
	places := record.DefaultPlaces(p.lookup, os.Geteuid())
	dirs := slices.Concat(places.Journals, places.Records)
	if wd, err := os.Getwd(); err == nil {
		// Where a job is asked about is most often where it was submitted.
		dirs = append([]string{filepath.Join(wd, ".rsswarden")}, dirs...)
	}
	if _, inSlurm := p.lookup("SLURM_JOB_ID"); inSlurm {
		// Outside a job a run leaves it elsewhere.
		outside := func(name string) (string, bool) {
			if name == "SLURM_JOB_ID" {
				return "", false
			}
			return p.lookup(name)
		}
		o := record.DefaultPlaces(outside, os.Geteuid())
		dirs = slices.Concat(dirs, o.Journals, o.Records)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
