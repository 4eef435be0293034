package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/text"
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
	recordStatus = "Exit status: 0 when it could tell, 1 when a record could not be read or a file\n" +
		"not written, 2 when nothing is known of the run, or for bad usage.\n"
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
	var size, others int64
	var all sync.WaitGroup
	turns := make(chan struct{}, readAtOnce)
	for i, f := range found {
		n, mine := f.Size()
		if size += n; !mine {
			others += n
		}
		switch {
		case f.Journal != "" && size > maxRecordBytes:
			f.Record = ""
			errs[i] = fmt.Errorf("the records are larger than %v together: of %s only the journal is read", rss.Bytes(maxRecordBytes), f.ID)
		case !mine && others > maxOthersBytes:
			f.Record = ""
			errs[i] = fmt.Errorf("the records of other users are larger than %v together: of %s at most the journal is read", rss.Bytes(maxOthersBytes), f.ID)
		}
		turns <- struct{}{}
		all.Go(func() {
			run, err := readRun(f, errs[i] == nil)
			runs[i], errs[i] = run, errors.Join(errs[i], err)
			<-turns
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
	if len(runs) == 0 {
		return nil, nil
	}
	newest, all := slices.MaxFunc(runs, func(a, b *record.Run) int { return a.Meta.Start.Compare(b.Meta.Start) }), len(runs)
	runs = slices.DeleteFunc(runs, func(r *record.Run) bool {
		return cluster(r) != "" && cluster(newest) != "" && cluster(r) != cluster(newest)
	})
	if n := all - len(runs); n > 0 {
		return runs, fmt.Errorf("another cluster has a job %s too: %d of its records are left out, name them by their paths", newest.Meta.Job.ID, n)
	}
	return runs, nil
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
func listed(dirs []string) (names []string) {
	for _, d := range dirs {
		if _, err := record.ReadDir(d); errors.Is(err, fs.ErrPermission) {
			d += " (" + errnoOf(err).Error() + ")"
		}
		names = append(names, d)
	}
	return names
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

// output runs a command of Slurm's and returns what it prints; the error is in its own words.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slurm.StandardTimes(cmd.Environ())
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return out, saidOf(ctx, err)
}

// saidOf is the error of a command that wrote one to stderr, or did not end in time.
func saidOf(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return errors.New("no answer in time")
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		said := text.Bounded{}
		said.Write(exit.Stderr)
		return errors.New(said.LastLine())
	}
	return err
}

// sumPatience is how long sacct may take to list the jobs of a site.
const sumPatience = 2 * time.Minute

// outputLines runs a command of Slurm's and hands over each line that it prints, without its end.
func outputLines(ctx context.Context, each func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slurm.StandardTimes(cmd.Environ())
	cmd.WaitDelay = time.Second
	said := text.Bounded{}
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		each(lines.Text())
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		exit.Stderr = said.Bytes()
	}
	return cmp.Or(saidOf(ctx, err), lines.Err())
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
