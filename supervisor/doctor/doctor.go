// Package doctor examines what works on this node and in this job: each check tries
// something, and says what was found, where, and what to do. The judgement of a check is
// a function over the facts that its probe has read.
package doctor

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Version is the value of "v" in [Report].
const Version = 1

// Status says how well something works.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Limited Status = "limited" // works in part, or more slowly, or is not known for certain
	Off     Status = "off"     // does not work, or is switched off
)

// Check is one thing that was looked at.
type Check struct {
	// Name is a word of a closed list, see [Names]. There is one check of each
	// name, but for python and alert, of which there is one for each that was asked, and
	// for release, of which there is one for each thing that differs between releases.
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`            // what was found, for people
	Source string `json:"source,omitempty"` // where it was read
	Do     string `json:"do,omitempty"`     // what to do; empty where nothing is to be done

	// part is why the job would be protected only in part, gain what its protection
	// rests on; both empty if the check decides neither.
	part, gain string
}

// Names of checks. Those of kernel features are "kernel-" and a name of
// [Features].
const (
	NameProgram    = "rsswarden"
	NameSettings   = "settings"
	NameRun        = "run"
	NameLimit      = "limit"
	NameTree       = "tree"
	NameCgroup     = "cgroup"
	NameSlurm      = "slurm"
	NameAccounting = "accounting"
	NameRelease    = "release"
	NameSignals    = "signals"
	NamePtrace     = "ptrace"
	NamePython     = "python"
	NameRunDir     = "run-dir"
	NameHookDir    = "hook-dir"
	NameRecord     = "record"
	NameJournal    = "journal"
	NameKernel     = "kernel"
	NameMaps       = "maps"
	NameFDs        = "fds"
	NameTasks      = "tasks"
	NameShm        = "shm"
	NameAlert      = "alert"
)

// Names lists the names of checks in the order in which they are printed.
var Names = []string{
	NameProgram, NameSettings, NameRun, NameLimit, NameTree, NameCgroup, NameSlurm, NameAccounting, NameRelease, NameSignals, NamePtrace,
	NamePython, NameRunDir, NameHookDir, NameRecord, NameJournal, NameKernel, NameMaps, NameFDs, NameTasks, NameShm, NameAlert,
}

// Report is what `rsswarden doctor --json` prints.
type Report struct {
	V      int     `json:"v"`
	Checks []Check `json:"checks"`
	// Protects says that `rsswarden run` would protect this job; the exit status is 0
	// then, else 1.
	Protects bool `json:"protects"`
	// Why is what that rests on; if it is false, why only in part.
	Why []string `json:"why"`
}

// Setup is what doctor needs of the program that asks.
type Setup struct {
	Program   ProgramFacts
	Lookup    func(string) (string, bool)
	Environ   []string
	Stderr    *os.File // for progress, where it is a terminal
	Warn      func(text string)
	Ends      <-chan os.Signal // end the examination
	DieBy     func(syscall.Signal)
	PID       int           // the process whose limits count
	Pythons   []string      // named by the user; none for those of PATH
	Patience  time.Duration // for each Python
	TryAlerts bool
	TryTorch  bool

	// Options of a run.
	Loader                                   bool
	Accounting                               event.Accounting
	Limit                                    rss.Bytes
	LimitShare                               float64
	Record                                   string // a directory, "none", or empty for the usual places
	Alerts                                   []alert.Target
	AlertProgram, AlertToken, AlertTokenFile string
	Origin                                   func(option string) string // where it was chosen, as the user wrote it

	Prepare     func() (loader.Prepared, error)
	LookPath    func(name string) (string, error)
	Sample      func(set *limit.Set, proc string, pid int) (*rss.Sample, error)
	CommandLine func(pid int) []string
}

type prober struct {
	Setup
	job         doctorJob
	trialLimits string // /proc/PID/limits of the trial run's command

	mu    sync.Mutex // held for good once a signal asked for the end
	child int        // the leader of the process group that we have started, else 0
	dir   string     // the run directory that we have made
}

func (d *prober) get(name string) string {
	v, _ := d.Lookup(name)
	return strings.TrimSpace(v)
}

// Examine makes all checks, in the order of [Names].
func Examine(s Setup) Report {
	d := &prober{Setup: s}
	go d.obey()
	var all []Check
	for _, checks := range []func(*prober) []Check{
		(*prober).program, (*prober).trial, (*prober).limits, (*prober).ptrace, (*prober).loaders, (*prober).records, (*prober).kernel,
		(*prober).numbers, (*prober).alerts,
	} {
		all = append(all, checks(d)...)
	}
	return Conclude(all)
}

// Conclude sums up.
func Conclude(checks []Check) Report {
	r := Report{V: Version, Checks: checks}
	var gains []string
	for _, c := range checks {
		if c.part != "" {
			r.Why = append(r.Why, c.part)
		}
		if c.gain != "" {
			gains = append(gains, c.gain)
		}
	}
	if r.Protects = len(r.Why) == 0; r.Protects {
		r.Why = gains
	}
	return r
}

// Print is for people: a line for each check, one for all kernel features, and a
// summary.
func (r Report) Print(w io.Writer) {
	var there []string
	for _, c := range r.Checks {
		if feature, ok := strings.CutPrefix(c.Name, featurePrefix); ok && c.Status == OK {
			there = append(there, feature)
		}
	}
	for _, c := range r.Checks {
		if strings.HasPrefix(c.Name, featurePrefix) && c.Status == OK {
			continue
		}
		if c.Name == NameKernel && len(there) > 0 {
			c.Found += "; has " + strings.Join(there, ", ")
		}
		c.print(w)
	}
	verdict := "run would protect this job"
	if !r.Protects {
		verdict = "run would protect this job only in part"
	}
	fmt.Fprintf(w, "\n%s: %s\n", verdict, strings.Join(r.Why, "; "))
}

func (c Check) print(w io.Writer) {
	name := c.Name
	if feature, ok := strings.CutPrefix(name, featurePrefix); ok {
		name = NameKernel
		c.Found = feature + ": " + c.Found
	}
	fmt.Fprintf(w, "%-7s  %-10s  %s", c.Status, name, text.Plain(c.Found))
	if c.Source != "" {
		fmt.Fprintf(w, " (%s)", text.Plain(c.Source))
	}
	fmt.Fprintln(w)
	if c.Do != "" {
		fmt.Fprintf(w, "%-7s  %-10s  do: %s\n", "", "", text.Plain(c.Do))
	}
}
