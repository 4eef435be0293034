package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
)

const doctorNotes = `PYTHON is what trains, such as that of a virtual environment; left out, python
and python3 of PATH are asked. Each is started as run starts it, imports torch
if 1 GiB or more is left below the limit, and is killed with its children when
its time is over. One run of a command that ends at once is tried, and one child
is stopped by ptrace and let go.
Exit status: 0 when run would protect this job: a limit of its own was read, and
nothing about it is assumed; its processes can be read; the run that was tried
was watched; and the loader hook works: in every PYTHON named, or in one of PATH
(one with torch, if any has it), or no Python is there. It works where it is
loaded and, if torch is there, can replace loader workers. 1 when run would
protect it only in part.
`

func doctorCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:        "doctor",
		Usage:       "say what of rsswarden works here, and what to do about the rest",
		UsageText:   "rsswarden doctor [OPTIONS] [--] [PYTHON...]",
		Args:        true,
		Description: doctorNotes,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "timeout", Value: "10s", Usage: "`DURATION`: how long each Python may take"},
			&cli.BoolFlag{Name: "torch", Usage: "try recycling with a PyTorch that is not known"},
			&cli.BoolFlag{Name: "try-alerts", Usage: "send a test alert to each receiver of RSSWARDEN_ALERT"},
		},
		ArgsUsage: examples(
			"srun --mem 4G rsswarden doctor",
			"rsswarden doctor ~/venv/bin/python",
		),
	}, func(c *cli.Context) error {
		d := &diagnosis{p: p, pythons: c.Args().Slice(), tryAlerts: c.Bool("try-alerts"), tryTorch: c.Bool("torch")}
		if err := setDuration(&d.patience, c.String("timeout"), time.Second, time.Hour); err != nil {
			return sourcedValue{name: "--timeout"}.usage(err)
		}
		for _, name := range d.pythons {
			if strings.HasPrefix(name, "-") && !strings.Contains(name, "/") {
				return usagef("options go before the first PYTHON; one of that name is ./"+name, "%q is not a Python", name)
			}
		}
		report := d.examine()
		if err := printDoctor(p, report, c.Bool("json")); err != nil {
			return err
		}
		if !report.Protects {
			return exitStatus(exitInPart)
		}
		return nil
	})
}

func printDoctor(p process, r doctor.Report, asJSON bool) error {
	var b strings.Builder
	if asJSON {
		if err := writeJSON(&b, r); err != nil {
			return err
		}
	} else {
		r.Print(&b)
	}
	if _, err := p.stdout.WriteString(b.String()); err != nil {
		return fmt.Errorf("cannot print what was found: %w", plain(err))
	}
	return nil
}

// diagnosis is one look at all there is.
type diagnosis struct {
	p        process
	pythons  []string // named by the user; none for those of PATH
	patience time.Duration
	// tryAlerts says that receivers of alerts are told one.
	tryAlerts bool
	// tryTorch says that a torch that is not known is tried.
	tryTorch bool

	settings supervisor.Settings

	mu    sync.Mutex // held for good once we were told to end
	child int        // the leader of the process group that we have started, else 0
	dir   string     // the run directory that we have made
}

// examine looks at everything.
func (d *diagnosis) examine() doctor.Report {
	go d.obey(interrupts())
	program, works := d.program()
	checks := program
	var trial trialRun
	if works {
		trial = d.tryRun()
		checks = append(checks, doctor.Run(trial.RunFacts))
	}
	job := d.findJob()
	checks = append(checks, job.checks()...)
	checks = append(checks, doctor.Ptrace(d.ptrace()))
	checks = append(checks, d.loaders(job.limits)...)
	checks = append(checks, d.records()...)
	var name unix.Utsname
	release := "of unknown version"
	if unix.Uname(&name) == nil {
		release = unix.ByteSliceToString(name.Release[:])
	}
	checks = append(checks, doctor.Kernel(release, doctor.ProbeFeatures("/proc"))...)
	checks = append(checks, doctor.Numbers(jobCounts(job, trial))...)
	if d.tryAlerts {
		checks = append(checks, d.alerts()...)
	}
	return doctor.Conclude(checks)
}

// program looks at rsswarden itself, and says whether run would start anything.
func (d *diagnosis) program() (checks []doctor.Check, works bool) {
	f := doctor.ProgramFacts{Version: version, Off: d.p.get("RSSWARDEN") == "off"}
	if path, err := os.Executable(); err == nil {
		f.Path = path
	}
	s, err := runSettings(d.p)
	d.settings = s
	if usage, ok := err.(*usageError); ok {
		f.Hint = usage.hint
	}
	if f.Usage, f.Warnings = err, s.Warnings; err != nil {
		// The rest is looked at as it would be without what is wrong.
		d.settings = supervisor.Settings{Loader: true}
	}
	for _, o := range s.Origins {
		switch {
		case o.Name == configOption.name:
			f.User = o.Value
		case o.Origin == originLocked:
			f.Locked = append(f.Locked, fmt.Sprintf("%s=%q", o.Name, o.Value))
		case o.Origin != originDefault:
			f.Chosen = append(f.Chosen, fmt.Sprintf("%s=%s (%s)", o.Name, o.Value, o.Origin))
		}
	}
	if _, err := os.Stat(d.p.site); err == nil {
		f.Site = d.p.site
	}
	return doctor.Program(f), !f.Off && err == nil
}

// runSettings are the settings that run would have without any option.
func runSettings(p process) (supervisor.Settings, error) {
	command := runCommand(p)
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	for _, f := range command.Flags {
		if err := f.Apply(set); err != nil {
			return supervisor.Settings{}, err
		}
	}
	c := cli.NewContext(nil, set, nil)
	c.Command = command
	return settings(p, c)
}

// within waits for what asks a file system, which may not answer: false then.
func within[T any](ask func() T) (T, bool) {
	c := make(chan T, 1)
	go func() { c <- ask() }()
	select {
	case v := <-c:
		return v, true
	case <-time.After(preparePatience):
		var none T
		return none, false
	}
}
