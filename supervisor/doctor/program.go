package doctor

import (
	"fmt"
	"strings"
)

// ProgramFacts are about rsswarden and its settings.
type ProgramFacts struct {
	Version, Path string
	// Off says that RSSWARDEN=off is in the environment.
	Off bool
	// Options not at their default, "limit=3G (environment)", and those that the site
	// locks.
	Chosen, Locked []string
	// The configuration files that were read.
	Site, User string
	Warnings   []string // of options that are not used as they were written
	// Usage is why run would start nothing, and Hint what to do.
	Usage error
	Hint  string
}

func (d *prober) program() []Check { return programChecks(d.Program) }

// programChecks says what rsswarden is, and how it was set up.
func programChecks(f ProgramFacts) []Check {
	c := Check{Name: NameProgram, Status: OK, Found: f.Version + " at " + f.Path, Source: "/proc/self/exe"}
	if f.Off {
		c.Status, c.Source = Off, "RSSWARDEN=off in the environment"
		c.Found += "; run executes the command in its place and watches nothing"
		c.Do = "unset RSSWARDEN"
		c.part = "RSSWARDEN=off makes run a plain exec"
		return []Check{c}
	}
	s := Check{Name: NameSettings, Status: OK, Found: "all options at their defaults"}
	var sources []string
	if f.User != "" {
		sources = append(sources, f.User)
	}
	if f.Site != "" {
		sources = append(sources, f.Site)
	}
	s.Source = strings.Join(append([]string{"RSSWARDEN_*"}, sources...), ", ")
	if len(f.Chosen) > 0 {
		s.Found = strings.Join(f.Chosen, ", ")
	}
	if len(f.Locked) > 0 {
		s.Found += "; locked by the site: " + strings.Join(f.Locked, ", ")
	}
	switch {
	case f.Usage != nil:
		s.Status, s.Found = Off, fmt.Sprintf("run would start nothing: %v", f.Usage)
		s.Do, s.part = f.Hint, "run would start nothing: "+f.Usage.Error()
	case len(f.Warnings) > 0:
		s.Status = Limited
		s.Found += "; " + strings.Join(f.Warnings, "; ")
		s.Do = "mend what the warning names, or unset it"
	}
	return []Check{c, s}
}

// runFacts are what came of `rsswarden run` with a command that ends at once.
type runFacts struct {
	Err     error  // it could not be started, or ended otherwise than the command
	Watched bool   // the watcher said that it watches
	Took    string // from its start to its end
	Said    string // its last words on stderr
}

// runCheck says whether holder and watcher can start here.
func runCheck(f runFacts) Check {
	c := Check{Name: NameRun, Status: OK, Source: "rsswarden run -- cat /proc/self/limits"}
	switch {
	case f.Err != nil:
		c.Status, c.Found = Off, fmt.Sprintf("a trial run failed: %v%s", f.Err, aside(f.Said))
		c.Do = "run it by hand: rsswarden run -- true"
		c.part = "a trial run failed"
	case !f.Watched:
		c.Status, c.Found = Off, "a trial run was not watched"+aside(f.Said)
		c.Do = "raise what it names; rsswarden run -- true says the same"
		c.part = "the command would run unwatched"
	default:
		c.Found = "a trial run was watched to its end, and took " + f.Took
	}
	return c
}
