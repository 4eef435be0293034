package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
)

// exporter is the process that reads a record by LMDB, which trusts its file and is
// written in C. It gets nothing of this process but the record and its output.
func exporter() *exec.Cmd {
	_ = store.CloseOnExec() // as far as it can be done
	cmd := exec.Command("/proc/self/exe", exportCommand)
	cmd.Env = []string{"GOTRACEBACK=single", "GOMAXPROCS=1"} // nothing of the user's has a say in it
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it has no terminal
	return cmd
}

const (
	// recordStatus is the exit status of what reads records.
	recordStatus = "Exit status: 0 when it was told, 1 when a record could not be read or a file not\n" +
		"written, 2 when no record is where it was looked for, or for bad usage.\n"
	hintNoRecord = "a run leaves a record once it has lasted a minute or a rule has fired; or say --record DIR"
)

// notRead is the error if nothing at all could be read.
func notRead(err error) error {
	if errors.As(err, new(*failure)) {
		return err
	}
	if err == nil {
		err = errors.New("no record could be read")
	}
	hint := "if its journal is whole: rsswarden report JOBID, where the job was submitted from"
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = "a record is its user's alone: read it as the user who ran the job"
	case errors.Is(err, nodedir.ErrLink):
		hint = "root follows no links of users: name the path that it leads to"
	case errors.Is(err, record.ErrNewer):
		hint = "read it with that rsswarden or a later one"
	case errors.Is(err, record.ErrForeign):
		hint = "name the directory of a record, a journal (.jsonl) or a Slurm job"
	}
	return recordFailure(err, hint)
}

// loadRuns reads the runs that a user names by files, directories or a Slurm job; by
// nothing, the newest. The error is about those that could not be read.
func loadRuns(p process, args []string) ([]*record.Run, error) {
	found, err := findRuns(p, args)
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

const (
	// maxRuns bounds the runs of one report: a node leaves one for each attempt, and one
	// for each change of its leader.
	maxRuns = 1024
	// maxRecordBytes bounds the full records that are read into memory. Beyond it only
	// journals are read.
	maxRecordBytes = 1 << 30
	// maxOthersBytes bounds those of other users, who may want to exhaust memory.
	maxOthersBytes = 64 << 20
	// readAtOnce is how many are read at a time, by a child process each.
	readAtOnce = 2
)

// readRuns reads each of them, the record and the journal.
func readRuns(found []record.Found) ([]*record.Run, error) {
	runs, errs := make([]*record.Run, len(found)), make([]error, len(found))
	var next, size, others atomic.Int64
	var all sync.WaitGroup
	for range min(readAtOnce, len(found)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(found); i = int(next.Add(1)) - 1 {
				f := found[i]
				n, mine := f.Size()
				switch {
				case f.Journal != "" && size.Add(n) > maxRecordBytes:
					f.Record = ""
					errs[i] = fmt.Errorf("the records are larger than %v together: of %s only the journal is read", rss.Bytes(maxRecordBytes), f.ID)
				case !mine && others.Add(n) > maxOthersBytes:
					f.Record = ""
					errs[i] = fmt.Errorf("the records of other users are larger than %v together: of %s at most the journal is read", rss.Bytes(maxOthersBytes), f.ID)
				}
				var err error
				runs[i], err = readRun(f, errs[i] == nil)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(runs, func(r *record.Run) bool { return r == nil }), errors.Join(errs...)
}

// readRun reads one run, nil if nothing could be read. look says whether to look for a
// record that only the journal names.
func readRun(f record.Found, look bool) (*record.Run, error) {
	var run, journal *record.Run
	var errs []error
	var err error
	if f.Record != "" {
		if run, err = store.Read(context.Background(), f.Record, exporter); err != nil {
			errs = append(errs, err)
		}
	}
	if f.Journal != "" {
		if journal, err = record.ReadJournal(f.Journal); err != nil {
			errs = append(errs, err)
		}
	}
	if run == nil && f.Record == "" && journal != nil && look {
		// A directory of --record, or a TMPDIR of the job's own, is known to
		// the journal alone. It may be gone, or of another node.
		if at, err := record.At(journal.Meta.Record); err == nil && at.ID == f.ID && at.Record != "" {
			run, err = store.Read(context.Background(), at.Record, exporter)
			if err == nil && !run.SameOwner(journal) {
				run, err = nil, fmt.Errorf("cannot read record %s: it belongs to another user than its journal", at.Record)
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	if run == nil {
		return journal, errors.Join(errs...)
	}
	run.Merge(journal)
	return run, errors.Join(errs...)
}

// newestCluster keeps the runs of the cluster that ran last: several clusters may share
// a directory and number their jobs alike.
func newestCluster(runs []*record.Run) ([]*record.Run, error) {
	cluster := func(r *record.Run) string {
		if r.Meta.Job == nil {
			return ""
		}
		return r.Meta.Job.Cluster
	}
	var newest *record.Run
	for _, r := range runs {
		if newest == nil || r.Meta.Start.After(newest.Meta.Start) {
			newest = r
		}
	}
	all := len(runs)
	runs = slices.DeleteFunc(runs, func(r *record.Run) bool {
		return cluster(r) != "" && cluster(newest) != "" && cluster(r) != cluster(newest)
	})
	if n := all - len(runs); n > 0 {
		return runs, fmt.Errorf("another cluster has a job %s too: %d of its records are left out, name them by their paths", newest.Meta.Job.ID, n)
	}
	return runs, nil
}

// slurmOutput is the default name of a job's output.
var slurmOutput = regexp.MustCompile(`^slurm-([0-9]+(?:_[0-9]+)?)\.out$`)

// findRuns finds what the arguments name. Those of one job belong together.
func findRuns(p process, args []string) ([]record.Found, error) {
	if len(args) == 0 {
		all := record.Find(recordPlaces(p)...)
		if len(all) == 0 {
			return nil, usagef(hintNoRecord, "no record was found in %s", listed(recordPlaces(p)))
		}
		return runsOfJob(all, all[0]), nil
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

func findRun(p process, arg string) ([]record.Found, error) {
	const hint = "name a record's path, or a Slurm job where it was submitted from"
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
	list := findByName(p, arg)
	if len(list) == 0 && strings.Contains(arg, "/") {
		return nil, recordFailure(fmt.Errorf("cannot read %s: %w", arg, errnoOf(err)), hint)
	}
	word := ""
	if len(list) == 0 {
		if job, err := askSlurm(slurm.Ended, arg); err == nil {
			// Of an array task, 12_3, records have the number.
			list = findByName(p, job.ID)
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

// findByName finds what one job, one step or one run has left.
func findByName(p process, name string) []record.Found {
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
	all := record.Find(recordDirs(dir)...)
	if len(all) == 0 {
		if err := whyUnreadable(dir); err != nil {
			return nil, notRead(fmt.Errorf("cannot read records in %s: %w", dir, err))
		}
		return nil, usagef("name the directory of --record, or one with .rsswarden in it", "no record in %s", dir)
	}
	return withOthers(p, runsOfJob(all, all[0])), nil
}

// recordDirs are the directories below dir in which records may be.
func recordDirs(dir string) []string {
	return []string{dir, filepath.Join(dir, ".rsswarden"), filepath.Join(dir, "records"), filepath.Join(dir, "journals")}
}

// whyUnreadable says that the directory, or a record in it, may not be read.
func whyUnreadable(dir string) error {
	entries, err := record.ReadDir(dir)
	if err != nil {
		return errnoOf(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if _, err := record.ReadDir(filepath.Join(dir, e.Name())); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", e.Name(), errnoOf(err))
		}
	}
	return nil
}

// listed names directories, and those that this user may not look into.
func listed(dirs []string) string {
	var names []string
	for _, d := range dirs {
		if _, err := record.ReadDir(d); errors.Is(err, fs.ErrPermission) {
			d += " (" + errnoOf(err).Error() + ")"
		}
		names = append(names, d)
	}
	return strings.Join(names, ", ")
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

// runsOfJob are the runs of one job, or one run outside Slurm.
func runsOfJob(all []record.Found, one record.Found) []record.Found {
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

// slurmPatience is how long Slurm may take to answer; a report does without.
const slurmPatience = 10 * time.Second

// askSlurm asks Slurm about one job, by [slurm.Ended] or [slurm.JobNodes].
func askSlurm[T any](about func(context.Context, slurm.Ask, string) (T, error), job string) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), slurmPatience)
	defer cancel()
	return about(ctx, output, job)
}

// output runs a command of Slurm's and returns what it prints.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slurm.StandardTimes(cmd.Environ())
	cmd.WaitDelay = time.Second
	return cmd.Output()
}

// exportCommand reads a record in a process of its own. Not for users.
const exportCommand = "export-record"

// exportRecord is what that process does.
func exportRecord(p process) int {
	if len(p.args) != 2 {
		return fail(p, usagef("rsswarden report", "%s is not for use by hand", exportCommand))
	}
	err := store.Confine()
	if err == nil {
		err = store.Export(os.NewFile(3, "record"), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return exitOK
}
