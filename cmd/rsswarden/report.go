package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func reportCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "report",
		Category:  "After",
		Usage:     "list past runs; why one died; what to ask for next",
		UsageText: "rsswarden report [--since TIME] [--outcome WORD] [--by WHAT] [DIR]...\nrsswarden report last | ID | JOBID | PATH [OPTIONS]\nrsswarden report --advise DIR...",
		Args:      true,
		Description: "Lists runs, newest first; an ID of the list, a job or a path shows one. Looks in\n" +
			".rsswarden here and of the job, $XDG_STATE_HOME/rsswarden, and on the node.\n" +
			recordStatus,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "full", Usage: "all that was found: limits, processes, evidence"},
			&cli.StringFlag{Name: "since", Usage: "list all runs of that `TIME`: 12h, 7d or 4w"},
			&cli.StringFlag{Name: "outcome", Usage: "list runs that ended so: a `WORD` of the column OUTCOME"},
			&cli.StringFlag{Name: "by", Usage: "sum up the runs of each command, node or user: `WHAT`"},
			colorFlag(p),
			&cli.BoolFlag{Name: "csv", Usage: "every sample of every process, as CSV"},
			&cli.StringFlag{Name: "html", Usage: "write a page to `FILE`: a timeline to zoom into, in one file"},
			&cli.StringFlag{Name: "svg", Usage: "write the timeline to `FILE` as an image"},
			&cli.BoolFlag{Name: "advise", Usage: "what to ask for next, from all runs in the directories"},
			&cli.BoolFlag{Name: "no-slurm", Usage: "do not ask sacct and scontrol how a job ended"},
		},
		ArgsUsage: examples(
			"rsswarden report last --html report.html",
			"rsswarden report --since 30d --by user ~/jobs/*/.rsswarden",
		),
	}, func(c *cli.Context) error {
		args, err := parseTrailingFlags(c)
		if err != nil {
			return err
		}
		if err := checkCombinations(c); err != nil {
			return err
		}
		if c.Bool("advise") {
			return advise(p, args, c.Bool("json"))
		}
		list, is, err := listOf(c, args)
		if err != nil {
			return err
		}
		if is {
			return listRuns(p, args, list)
		}
		return printReport(p, args, reportOptions{
			json: c.Bool("json"), csv: c.Bool("csv"), full: c.Bool("full"), html: c.String("html"), svg: c.String("svg"), noSlurm: c.Bool("no-slurm"),
		})
	})
}

// checkCombinations refuses options that do not go together, and empty ones.
func checkCombinations(c *cli.Context) error {
	for _, name := range []string{"html", "svg"} {
		if c.IsSet(name) && c.String(name) == "" {
			return usagef("rsswarden report --"+name+" report."+name, "--%s is empty; is a variable not set?", name)
		}
	}
	if c.Bool("json") && c.Bool("csv") {
		return usagef("ask for one of them, then for the other", "--json and --csv both go to standard output")
	}
	for _, name := range []string{"csv", "html", "svg"} {
		if c.Bool("advise") && c.IsSet(name) {
			return usagef("rsswarden report --advise --json DIR", "--advise has no form for --%s", name)
		}
	}
	return nil
}

// listOf are the options of a list; is says that one is asked for.
func listOf(c *cli.Context, args []string) (o listOptions, is bool, err error) {
	o = listOptions{by: c.String("by"), json: c.Bool("json")}
	is = len(args) == 0
	if c.IsSet("since") {
		is = true
		if o.since, err = parseSince(c.String("since")); err != nil {
			return o, is, err
		}
	}
	if c.IsSet("outcome") {
		is = true
		if o.outcome, err = parseOutcome(c.String("outcome")); err != nil {
			return o, is, err
		}
	}
	if c.IsSet("by") {
		is = true
		if err = usageOf("--by", oneOf(o.by, analysis.FleetBy...)); err != nil {
			return o, is, err
		}
	}
	for _, name := range []string{"csv", "html", "svg"} {
		if is && c.IsSet(name) {
			return o, is, usagef("name one run: rsswarden report last --"+name+map[string]string{"csv": "", "html": " run.html", "svg": " run.svg"}[name], "a list of runs has no form for --%s", name)
		}
	}
	return o, is, nil
}

type reportOptions struct {
	json, csv, full, noSlurm bool
	html, svg                string
}

// printReport prints one report, or writes it to files.
func printReport(p process, args []string, o reportOptions) error {
	runs, err := loadRuns(p, args, !o.noSlurm)
	if len(runs) == 0 {
		// What is known of a run without a record has one form, and nothing to draw.
		var shown interface{ show(process, bool) error }
		if errors.As(err, &shown) && len(args) == 1 && !o.csv && o.html == "" && o.svg == "" {
			return shown.show(p, o.json)
		}
		return notRead(err)
	}
	if err != nil {
		p.warn(sentences(err.Error()))
	}
	files := o.html != "" || o.svg != ""
	if o.csv && !files {
		return printed(p, func(w io.Writer) error { return render.CSV(w, runs) })
	}
	now := time.Now()
	rep := analysis.Analyze(analysis.Input{Runs: runs, Slurm: slurmSays(runs, o.noSlurm), Now: now, Timeline: files})
	render.Explain(rep, now)
	if files {
		if err := toFile(o.html, func(w io.Writer) error { return render.HTML(w, rep) }); err != nil {
			return err
		}
		if err := toFile(o.svg, func(w io.Writer) error { return render.SVG(w, rep) }); err != nil {
			return err
		}
		if !o.json && !o.csv {
			return printed(p, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, oneLine(rep.Verdict))
				return err
			})
		}
	}
	if o.csv {
		return printed(p, func(w io.Writer) error { return render.CSV(w, runs) })
	}
	return show(p, o.json, rep, func(w io.Writer, style text.Style) error { return render.Text(w, rep, style, o.full) })
}

// advise prints what all runs in the directories come to.
func advise(p process, dirs []string, asJSON bool) error {
	const hint = "name a directory in which runs have left records; with none named, rsswarden report --advise looks through those it knows"
	for _, d := range dirs {
		_, err := record.ReadDir(d)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, nodedir.ErrLink) {
			return notRead(fmt.Errorf("cannot read runs in %s: %w", d, errnoOf(err)))
		}
		if err != nil {
			return usagef(hint, "cannot read runs in %s: %v", d, errnoOf(err))
		}
	}
	named := len(dirs) > 0
	if !named {
		dirs = recordPlaces(p)
	}
	var places []string
	for _, d := range dirs {
		places = append(places, recordDirs(d)...)
	}
	runs, err := readRuns(record.Find(places...))
	switch {
	case len(runs) == 0 && err != nil:
		return notRead(err)
	case len(runs) == 0 && !named:
		return usagef(hintNoRecord, "no run has left a record in %s", listed(dirs))
	case len(runs) == 0:
		return usagef(hint, "no run has left a record in %s", listed(dirs))
	case err != nil:
		p.warn(sentences(err.Error()))
	}
	lines := render.Advise(runs)
	forPrograms := struct {
		V      int                   `json:"v"`
		Runs   int                   `json:"runs"`
		Advice []analysis.AdviceLine `json:"advice"`
	}{analysis.Version, len(runs), lines}
	return show(p, asJSON, forPrograms, func(w io.Writer, style text.Style) error {
		return render.WriteAdvice(w, len(runs), lines, style)
	})
}

// slurmSays is how the job ended, nil if there is no answer.
func slurmSays(runs []*record.Run, no bool) *slurm.EndedJob {
	job := runs[0].Meta.Job
	if no || job == nil {
		return nil
	}
	said, err := askSlurm(slurm.Ended, job.ID)
	if err != nil {
		return nil
	}
	if lacksNodes(runs) {
		// Without an answer the report still says how many are missing.
		said.Nodes, _ = askSlurm(slurm.JobNodes, job.ID)
	}
	return &said
}

// lacksNodes says that the job's last attempt had more nodes than left records.
func lacksNodes(runs []*record.Run) bool {
	attempt := 0
	for _, r := range runs {
		if r.Meta.Job != nil {
			attempt = max(attempt, r.Meta.Job.Restarts)
		}
	}
	nodes, most := map[string]bool{}, 0
	for _, r := range runs {
		if j := r.Meta.Job; j != nil && j.Restarts == attempt {
			nodes[r.Meta.Node] = true
			most = max(most, j.Nodes)
		}
	}
	return most > len(nodes)
}
