package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/report"
)

func reportCommand(p process) *cli.Command {
	return &cli.Command{
		Name:            "report",
		Usage:           "tell why a run died, or by how much it lived, and what to ask for next",
		UsageText:       "rsswarden report [RECORD | DIR | JOBID]... [OPTIONS]\nrsswarden report --advise DIR...",
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description: "Of the newest run, or of a Slurm job with all its nodes and ranks. Records are\n" +
			"looked for in .rsswarden below this directory and the one the job was submitted\n" +
			"from, in $XDG_STATE_HOME/rsswarden, and where a run keeps them on its node.\n" +
			"sacct and scontrol are asked how the job ended, where they are there.\n",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "for programs"},
			&cli.BoolFlag{Name: "csv", Usage: "every sample of every process, as CSV"},
			&cli.StringFlag{Name: "html", Usage: "write a page to `FILE`: a timeline to zoom into, in one file"},
			&cli.StringFlag{Name: "svg", Usage: "write the timeline to `FILE` as an image"},
			&cli.BoolFlag{Name: "advise", Usage: "what to ask for next, from all runs in the directories"},
			&cli.BoolFlag{Name: "no-slurm", Usage: "do not ask sacct and scontrol"},
			helpFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return showHelp(p, c)
			}
			args, err := flagsLast(c)
			if err != nil {
				return err
			}
			if c.Bool("advise") {
				return advise(p, args, c.Bool("json"))
			}
			return printReport(p, args, reportOptions{
				json: c.Bool("json"), csv: c.Bool("csv"), html: c.String("html"), svg: c.String("svg"), noSlurm: c.Bool("no-slurm"),
			})
		},
	}
}

// flagsLast sets flags that stand behind arguments: `report 4711 --json`. The cli
// package takes them for arguments.
func flagsLast(c *cli.Context) ([]string, error) {
	var args []string
	rest := c.Args().Slice()
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		if a == "--" {
			return append(args, rest[i+1:]...), nil
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			args = append(args, a)
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f := flagNamed(c.Command.Flags, name)
		if f == nil {
			return nil, usagef("rsswarden "+c.Command.Name+" --help lists the options", "there is no option %s", a)
		}
		if _, truth := f.(*cli.BoolFlag); truth && !has {
			value = "true"
		} else if !has {
			if i++; i == len(rest) {
				return nil, usagef("rsswarden "+c.Command.Name+" --help lists the options", "%s needs a value", a)
			}
			value = rest[i]
		}
		if err := c.Set(name, value); err != nil {
			return nil, usagef("rsswarden "+c.Command.Name+" --help lists the options", "cannot set %s: %v", a, err)
		}
	}
	return args, nil
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return f
			}
		}
	}
	return nil
}

type reportOptions struct {
	json, csv, noSlurm bool
	html, svg          string
}

// printReport prints one report, or writes it to files.
func printReport(p process, args []string, o reportOptions) error {
	runs, err := loadRuns(p, args)
	if len(runs) == 0 {
		return notRead(err)
	}
	if err != nil {
		fmt.Fprint(p.stderr, line("", "warning", oneLine(err.Error()), ""))
	}
	if o.csv {
		return buffered(p.stdout, func(w io.Writer) error { return report.WriteCSV(w, runs) })
	}
	rep := report.Build(runs, askSlurm(runs, o.noSlurm), time.Now())
	if o.html != "" || o.svg != "" {
		series := report.Series(runs)
		if err := toFile(o.html, func(w io.Writer) error { return report.WriteHTML(w, rep, &series) }); err != nil {
			return err
		}
		if err := toFile(o.svg, func(w io.Writer) error { return report.WriteSVG(w, rep, &series) }); err != nil {
			return err
		}
		if !o.json {
			_, err := fmt.Fprintln(p.stdout, rep.Verdict)
			return plain(err)
		}
	}
	return buffered(p.stdout, func(w io.Writer) error {
		if o.json {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(rep)
		}
		return report.WriteText(w, rep, columns(p.stdout), colours(p))
	})
}

// notRead is the error where nothing could be read at all.
func notRead(err error) error {
	if err == nil {
		err = fmt.Errorf("no record could be read")
	}
	return err
}

// advise prints what all runs in the directories come to.
func advise(p process, dirs []string, asJSON bool) error {
	if len(dirs) == 0 {
		dirs = recordPlaces(p)
	}
	for _, d := range dirs {
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			if err == nil {
				err = unix.ENOTDIR
			}
			if len(dirs) == 1 {
				return usagef("rsswarden report --advise .rsswarden", "cannot read runs in %s: %v", d, plain(err))
			}
		}
	}
	var places []string
	for _, d := range dirs {
		places = append(places, d, filepath.Join(d, ".rsswarden"), filepath.Join(d, "records"), filepath.Join(d, "journals"))
	}
	runs, err := readRuns(record.Find(places...))
	if len(runs) == 0 {
		if err == nil {
			return usagef("rsswarden report --advise .rsswarden", "no run has left a record in %s", strings.Join(dirs, ", "))
		}
		return err
	}
	if err != nil {
		fmt.Fprint(p.stderr, line("", "warning", oneLine(err.Error()), ""))
	}
	lines := report.Advise(runs)
	return buffered(p.stdout, func(w io.Writer) error {
		if asJSON {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(struct {
				V      int           `json:"v"`
				Runs   int           `json:"runs"`
				Advice []report.Line `json:"advice"`
			}{report.Version, len(runs), lines})
		}
		return report.WriteAdvice(w, len(runs), lines, columns(p.stdout), colours(p))
	})
}

// slurmPatience is how long Slurm may take to answer. Its word is a help and no
// more.
const slurmPatience = 10 * time.Second

// askSlurm asks how the job ended, nil where there is none or nobody answers.
func askSlurm(runs []*record.Run, no bool) *report.SlurmSays {
	job := runs[0].Meta.Job
	if no || job == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), slurmPatience)
	defer cancel()
	ended, err := slurm.Ended(ctx, func(ctx context.Context, name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.WaitDelay = time.Second
		return cmd.Output()
	}, job.ID)
	if err != nil {
		return nil
	}
	said := report.Says(ended)
	return &said
}

// toFile writes a file whole or not at all; an empty name is none.
func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".rsswarden-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, plain(err))
	}
	err = buffered(f, write)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", name, plain(err))
	}
	return nil
}

func buffered(to io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(to, 64<<10)
	err := write(w)
	if e := w.Flush(); err == nil {
		err = e
	}
	return plain(err)
}

// columns is the width of a terminal, 80 elsewhere.
func columns(f *os.File) int {
	if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col >= 40 {
		return int(min(ws.Col, 160))
	}
	return 80
}

// colours says whether to colour: on a terminal, unless NO_COLOR is set
// (no-color.org).
func colours(p process) bool {
	_, err := unix.IoctlGetTermios(int(p.stdout.Fd()), unix.TCGETS)
	return err == nil && p.get("NO_COLOR") == "" && p.get("TERM") != "dumb"
}
