package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/phrase"
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
	// Name is a word of a closed list, see [NameProgram]. There is one check of each
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

// as is the check with a verdict.
func (c Check) as(status Status, do, found string, args ...any) Check {
	c.Status, c.Do, c.Found = status, do, fmt.Sprintf(found, args...)
	return c
}

// inPart is the check with why the job would be protected only in part.
func (c Check) inPart(why string) Check {
	c.part = why
	return c
}

// Names of checks, in the order in which they are printed. Those of kernel features are
// "kernel-" and a name of [Features].
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
	NamePlugin     = "plugin"
	NameTaskProlog = "task-prolog"
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

// Report is what `rsswarden doctor --json` prints.
type Report struct {
	V      int     `json:"v"`
	Checks []Check `json:"checks"`
	// Protects says that `rsswarden run` would protect this job; the exit status is 0
	// then, else 1.
	Protects bool `json:"protects"`
	// Why is what that rests on; if it is false, why only in part.
	Why []string `json:"why"`
	// Works is what the rules of a run can do for each limit.
	Works []phrase.Works `json:"works"`
}

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
func (r Report) Print(w io.Writer, style text.Style) {
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
		c.print(w, style)
	}
	verdict, paint := "run would protect this job", text.Green
	if !r.Protects {
		verdict, paint = "run would protect this job only in part", text.Yellow
	}
	fmt.Fprintln(w)
	for i, line := range text.Wrap(verdict+": "+strings.Join(r.Why, "; "), style.Columns()) {
		if rest, ok := strings.CutPrefix(line, verdict); i == 0 && ok {
			line = style.Paint(paint, verdict) + rest
		}
		fmt.Fprintln(w, line)
	}
	phrase.PrintWorks(w, r.Works, style.Columns())
}

var statusPaint = map[Status]text.Paint{OK: text.Green, Limited: text.Yellow, Off: text.Red}

func (c Check) print(w io.Writer, style text.Style) {
	name := c.Name
	if feature, ok := strings.CutPrefix(name, featurePrefix); ok {
		name = NameKernel
		c.Found = feature + ": " + c.Found
	}
	status := fmt.Sprintf("%-7s", c.Status)
	found, source := text.Plain(c.Found), ""
	if c.Source != "" {
		source = "(" + text.Plain(c.Source) + ")"
	}
	lines := text.Hang(status+"  "+name, foundColumn, found, style.Columns())
	if last := len(lines) - 1; source != "" && text.Columns(lines[last])+1+text.Columns(source) <= style.Columns() {
		lines[last] += " " + style.Paint(text.Dim, source)
		source = ""
	}
	lines[0] = style.Paint(statusPaint[c.Status], status) + strings.TrimPrefix(lines[0], status)
	if source != "" {
		for _, line := range text.Hang("", foundColumn, source, style.Columns()) {
			lines = append(lines, style.Paint(text.Dim, line))
		}
	}
	if c.Do != "" {
		lines = append(lines, text.Hang("", foundColumn, "do: "+text.Plain(c.Do), style.Columns())...)
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

// foundColumn is where what was found begins, beside status and name.
const foundColumn = 21

const featurePrefix = NameKernel + "-"

func aside(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}
