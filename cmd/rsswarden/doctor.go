package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const doctorNotes = `PYTHON is what trains, such as that of a virtual environment; left out, python
and python3 of PATH are asked. Each is started as run starts it, imports torch
if 1 GiB or more is left below the limit, and is killed with its children when
its time is over. One run of a command that ends at once is tried, and one child
is stopped by ptrace and let go.
Exit status: 0 when run would protect this job: the job's limit was read,
not assumed; its processes can be read; a run that was tried was watched; and
the loader hook works in each PYTHON named, else in one of PATH, or there is no
Python. The hook works where it is loaded and, with torch, can replace workers.
1 when run would protect the job only in part.
`

func doctorCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:        "doctor",
		Category:    "Look",
		Usage:       "check this environment",
		UsageText:   "rsswarden doctor [OPTIONS] [--] [PYTHON...]",
		Args:        true,
		Description: doctorNotes,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "timeout", Value: "10s", Usage: "`DURATION`: how long each Python may take"},
			&cli.BoolFlag{Name: "torch", Usage: "try recycling with a PyTorch that is not known"},
			&cli.BoolFlag{Name: "try-alerts", Usage: "send a test alert to each receiver of RSSWARDEN_ALERT"},
			colorFlag(p),
		},
		ArgsUsage: examples(
			"srun --mem 4G rsswarden doctor",
			"rsswarden doctor ~/venv/bin/python",
		),
	}, func(c *cli.Context) error {
		s := doctorSetup(p)
		s.Pythons, s.TryAlerts, s.TryTorch = c.Args().Slice(), c.Bool("try-alerts"), c.Bool("torch")
		if err := setDuration(&s.Patience, c.String("timeout"), time.Second, time.Hour); err != nil {
			return usageOf("--timeout", err)
		}
		for _, name := range s.Pythons {
			if strings.HasPrefix(name, "-") && !strings.Contains(name, "/") {
				return usagef("options go before the first PYTHON; one of that name is ./"+name, "%q is not a Python", name)
			}
		}
		report := doctor.Examine(s)
		if err := show(p, c.Bool("json"), report, func(w io.Writer, style text.Style) error {
			report.Print(w, style)
			return nil
		}); err != nil {
			return err
		}
		if !report.Protects {
			return exitStatus(exitFailed)
		}
		return nil
	})
}

// doctorSetup is what a run without any option would have.
func doctorSetup(p process) doctor.Setup {
	f := doctor.ProgramFacts{Version: p.version, Off: p.get("RSSWARDEN") == "off"}
	f.Path, _ = os.Executable()
	s, err := runSettings(p)
	var usage *failure
	if errors.As(err, &usage) {
		f.Hint = usage.hint
	}
	origins := s.Origins
	if f.Usage, f.Warnings = err, s.Warnings; err != nil {
		// The rest is examined as it would be without what is wrong.
		s = settings.Settings{Policy: settings.Policy{
			Rules: policy.Default(), Workers: settings.Workers{Loader: true, Trim: settings.TrimHook},
		}}
	}
	for _, o := range origins {
		switch {
		case o.Name == configOption.name:
			f.User = o.Value
		case o.Origin == originLocked:
			f.Locked = append(f.Locked, fmt.Sprintf("%s=%q", o.Name, o.Value))
		case o.Origin != originDefault:
			f.Chosen = append(f.Chosen, fmt.Sprintf("%s=%s (%s)", o.Name, o.Value, o.Origin))
		}
	}
	if _, err := os.Stat(p.site); err == nil {
		f.Site = p.site
	}
	return doctor.Setup{
		Program: f, Lookup: p.lookup, Environ: p.env, Stderr: p.stderr, Warn: p.warn, Ends: interrupts(), DieBy: dieBy,
		PID: shellOrSelf("/proc", os.Getppid(), os.Getpid()), Settings: s,
		Origin:  func(name string) string { return p.writtenAt(name, s.Origins) },
		Prepare: func() (loader.Prepared, error) { return prepare(loader.Options{Env: p.env}) },
		WhyBare: func() error { return whyBare(p.lookup, slurm.RlimitRSS()) },
		LookPath: func(name string) (string, error) {
			path, err := p.lookPath(name)
			if err != nil {
				err = notStarted(name, err)
			}
			return path, err
		},
		Sample: countedBy, CommandLine: commandLine,
		Counts: func(pid int, procs []rss.Proc) []event.Limit { return sides("/proc", "/sys", pid, procs) },
	}
}

// writtenAt is where an option was chosen, as the user wrote it.
func (p process) writtenAt(name string, origins []event.Setting) string {
	for _, o := range origins {
		switch {
		case o.Name != name || o.Origin == originDefault:
		case o.Origin == originEnvironment:
			return variableOf(name)
		case filepath.IsAbs(o.Origin):
			return o.Origin
		default:
			return p.site
		}
	}
	return ""
}

// runSettings are the settings that run would have without any option.
func runSettings(p process) (settings.Settings, error) {
	command := runCommand(p)
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	for _, f := range command.Flags {
		if err := f.Apply(set); err != nil {
			return settings.Settings{}, err
		}
	}
	c := cli.NewContext(nil, set, nil)
	c.Command = command
	return settingsOf(p, c)
}
