package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

func (d *prober) program() []Check { return programChecks(d.Program) }

// programChecks says what rsswarden is, and how it was set up.
func programChecks(f ProgramFacts) []Check {
	c := Check{Name: NameProgram, Status: OK, Found: f.Version + " at " + f.Path, Source: "/proc/self/exe"}
	if f.Off {
		c.Source = "RSSWARDEN=off in the environment"
		return []Check{c.as(Off, "unset RSSWARDEN", "%s; run executes the command in its place and watches nothing", c.Found).inPart("RSSWARDEN=off makes run a plain exec")}
	}
	s := Check{Name: NameSettings, Status: OK, Found: "all options at their defaults"}
	sources := slices.DeleteFunc([]string{"RSSWARDEN_*", f.User, f.Site}, func(s string) bool { return s == "" })
	s.Source = strings.Join(sources, ", ")
	if len(f.Chosen) > 0 {
		s.Found = strings.Join(f.Chosen, ", ")
	}
	if len(f.Locked) > 0 {
		s.Found += "; locked by the site: " + strings.Join(f.Locked, ", ")
	}
	switch {
	case f.Usage != nil:
		s = s.as(Off, f.Hint, "run would start nothing: %v", f.Usage).inPart("run would start nothing: " + f.Usage.Error())
	case len(f.Warnings) > 0:
		s = s.as(Limited, "fix what the warning names, or unset it", "%s; %s", s.Found, strings.Join(f.Warnings, "; "))
	}
	return []Check{c, s}
}

type runFacts struct {
	Err     error  // it could not be started, or ended otherwise than the command
	Watched bool   // the watcher said that it watches
	Took    string // from its start to its end
	Said    string // its last words on stderr
}

// runCheck says whether holder and watcher can start here.
func runCheck(f runFacts) Check {
	c := Check{Name: NameRun, Source: "rsswarden run -- cat /proc/self/limits"}
	switch {
	case f.Err != nil:
		return c.as(Off, "run it by hand: rsswarden run -- true", "a trial run failed: %v%s", f.Err, aside(f.Said)).inPart("a trial run failed")
	case !f.Watched:
		return c.as(Off, "raise what it names; rsswarden run -- true says the same", "a trial run was not watched%s", aside(f.Said)).inPart("the command would run unwatched")
	}
	return c.as(OK, "", "a trial run was watched to its end, and took %s", f.Took)
}

// trial is a run of a command that prints its limits and ends. The user's own options are
// left out: they were checked already, and a trial leaves nothing behind.
func (d *prober) trial() (checks []Check) {
	if d.Program.Off || d.Program.Usage != nil {
		return nil
	}
	var t runFacts
	defer func() { checks = []Check{runCheck(t)} }()
	read, write, err := os.Pipe()
	if err != nil {
		t.Err = err
		return
	}
	defer read.Close()
	args := []string{
		"run", "--at", "none", "--dry-run", "--record", "none", "--loader", "off", "--events", "/dev/fd/3", "--", "cat", "/proc/self/limits",
	}
	var out, errs text.Bounded
	began := time.Now()
	err = d.start("/proc/self/exe", args, trialPatience, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &errs, []*os.File{write}
		for _, kv := range d.Environ {
			if !strings.HasPrefix(kv, "RSSWARDEN_") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
	})
	t.Took = fmt.Sprintf("%.0f ms", time.Since(began).Seconds()*1e3)
	write.Close()
	var events text.Bounded
	_ = read.SetReadDeadline(time.Now().Add(time.Second)) // a process may still have the other end
	_, _ = events.ReadFrom(read)
	t.Err, t.Said, d.trialLimits = err, errs.LastLine(), out.String()
	// A site may lock either of the two.
	t.Watched = strings.Contains(events.String(), `"event":"start"`) || strings.Contains(errs.String(), " watching ")
	return
}
