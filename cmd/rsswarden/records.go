package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// exportCommand opens a record in a process of its own, for reading; not for
// users.
const exportCommand = "export-record"

// exportRecord is what that process does.
func exportRecord(p process) int {
	if len(p.args) != 3 {
		return fail(p, usagef("rsswarden report", "%s is not for use by hand", exportCommand))
	}
	if err := record.Export(p.args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return exitOK
}

func exporter(dir string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", exportCommand, dir)
	cmd.Env = []string{"GOTRACEBACK=single"} // nothing of the user's has a say in it
	return cmd
}

// loadRuns reads the runs that a user names: by files or directories, by a
// Slurm job, or by nothing, which is the newest. The error tells of those that
// could not be read; the others are returned all the same.
func loadRuns(p process, args []string) ([]*record.Run, error) {
	found, err := findRuns(p, args)
	if err != nil {
		return nil, err
	}
	return readRuns(found)
}

// readRuns reads each of them, the record and the journal.
func readRuns(found []record.Found) ([]*record.Run, error) {
	var runs []*record.Run
	var errs []error
	for _, f := range found {
		var run, journal *record.Run
		var err error
		if f.Record != "" {
			if run, err = record.Read(context.Background(), f.Record, exporter); err != nil {
				errs = append(errs, err)
			}
		}
		if f.Journal != "" {
			if journal, err = record.ReadJournal(f.Journal); err != nil {
				errs = append(errs, err)
			}
		}
		if run == nil && f.Record == "" && journal != nil {
			// A directory of --record, or a TMPDIR of the job's own, is known to
			// the journal alone. It may be gone, or of another node.
			if at, ok := record.At(journal.Meta.Record); ok && at.ID == f.ID && at.Record != "" {
				if run, err = record.Read(context.Background(), at.Record, exporter); err != nil {
					errs = append(errs, err)
				}
			}
		}
		switch {
		case run != nil:
			run.Merge(journal)
			runs = append(runs, run)
		case journal != nil:
			runs = append(runs, journal)
		}
	}
	return runs, errors.Join(errs...)
}

// findRuns finds what the arguments name. Those of one job belong together.
func findRuns(p process, args []string) ([]record.Found, error) {
	if len(args) == 0 {
		all := record.Find(recordPlaces(p)...)
		if len(all) == 0 {
			return nil, usagef("a run leaves a record once it has lasted a minute or a rule has fired; or say --record DIR", "no record was found in %s", strings.Join(recordPlaces(p), ", "))
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
			if !slices.ContainsFunc(found, func(o record.Found) bool { return o.ID == f.ID && o.Record == f.Record && o.Journal == f.Journal }) {
				found = append(found, f)
			}
		}
	}
	return found, nil
}

func findRun(p process, arg string) ([]record.Found, error) {
	if f, ok := record.At(arg); ok {
		return []record.Found{withOther(p, f)}, nil
	}
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		all := record.Find(arg, filepath.Join(arg, ".rsswarden"), filepath.Join(arg, "records"), filepath.Join(arg, "journals"))
		if len(all) == 0 {
			return nil, usagef("rsswarden report JOBID, or the directory that a run names in its first line", "no record in %s", arg)
		}
		return sameJob(all, all[0]), nil
	}
	var list []record.Found
	for _, f := range record.Find(recordPlaces(p)...) {
		if f.Job != "" && (f.Job == arg || strings.HasPrefix(arg, f.Job+".")) || f.ID == arg {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return nil, usagef("in the directory the job was submitted from, rsswarden report JOBID; or a record's path", "no record of %q in %s", arg, strings.Join(recordPlaces(p), ", "))
	}
	return list, nil
}

// withOther finds the record of a journal, and the journal of a record.
func withOther(p process, f record.Found) record.Found {
	for _, o := range record.Find(append(recordPlaces(p), filepath.Dir(f.Record), filepath.Dir(f.Journal))...) {
		if o.ID != f.ID {
			continue
		}
		if f.Record == "" {
			f.Record = o.Record
		}
		if f.Journal == "" {
			f.Journal = o.Journal
		}
	}
	return f
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
