package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
		UsageText: "rsswarden report [--since TIME] [--outcome WORD] [--by WHAT] [DIR]...\nrsswarden report last | ID | JOBID | PATH [OPTIONS]\nrsswarden report --advise [DIR]...",
		Args:      true,
		Description: "Lists runs, newest first; an ID of the list, a job or a path shows one. Looks in\n" +
			".rsswarden here and of the job, $XDG_STATE_HOME/rsswarden, and on the node.\n" +
			recordStatus,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "full", Usage: "more: limits, processes, evidence"},
			&cli.StringFlag{Name: "since", Usage: "list all runs of that `TIME`: 12h, 7d or 4w"},
			&cli.StringFlag{Name: "outcome", Usage: "list runs that ended so: a `WORD` of the column OUTCOME"},
			&cli.StringFlag{Name: "by", Usage: "sum up the jobs of each command, node or user: `WHAT`"},
			colorFlag(p),
			&cli.BoolFlag{Name: "csv", Usage: "every sample of every process, as CSV"},
			&cli.StringFlag{Name: "html", Usage: "write a page to `FILE`: a timeline to zoom into; --by: the sums"},
			&cli.StringFlag{Name: "svg", Usage: "write the timeline to `FILE` as an image"},
			&cli.BoolFlag{Name: "advise", Usage: "what to ask for next, from all runs in the directories"},
			&cli.BoolFlag{Name: "no-slurm", Usage: "do not ask sacct and scontrol how jobs ended"},
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
		list, is, err := listOf(c, args)
		switch {
		case err != nil:
			return err
		case c.Bool("advise"):
			return advise(p, args, c.Bool("json"))
		case list.by != "":
			return sumUp(p, args, list)
		case is:
			return listRuns(p, args, list)
		}
		return printReport(p, c, args)
	})
}

// mostListed is how many runs are listed where no time is given.
const mostListed = 15

// listOptions say which runs are listed, and how.
type listOptions struct {
	since   time.Duration // 0 for any time
	outcome event.RunOutcome
	by      string
	json    bool
	html    string // a file, empty for none
	noSlurm bool
}

// listOf are the options of a list; is says that one is asked for. Options that do not go
// together, and empty ones, are refused.
func listOf(c *cli.Context, args []string) (o listOptions, is bool, err error) {
	o = listOptions{by: c.String("by"), json: c.Bool("json"), html: c.String("html"), noSlurm: c.Bool("no-slurm")}
	is = len(args) == 0 || c.IsSet("since") || c.IsSet("outcome") || c.IsSet("by")
	if o.json && c.Bool("csv") {
		return o, is, usagef("ask for one of them, then for the other", "--json and --csv both go to standard output")
	}
	if c.IsSet("since") {
		o.since, err = parseSince(c.String("since"))
	}
	if err == nil && c.IsSet("outcome") {
		o.outcome, err = event.RunOutcome(c.String("outcome")), usageOf("--outcome", oneOf(c.String("outcome"), listOfWords(event.RunOutcomes)...))
	}
	if err == nil && c.IsSet("by") {
		err = usageOf("--by", oneOf(o.by, analysis.FleetBy...))
	}
	for _, name := range []string{"csv", "html", "svg"} {
		file := ""
		if name != "csv" {
			file = " run." + name
		}
		switch {
		case err != nil || !c.IsSet(name):
		case file != "" && c.String(name) == "":
			err = usagef("rsswarden report --"+name+file, "--%s is empty; is a variable not set?", name)
		case c.Bool("advise"):
			err = usagef("rsswarden report --advise --json DIR", "--advise has no form for --%s", name)
		case is && !(name == "html" && o.by != ""):
			err = usagef("name one run: rsswarden report last --"+name+file, "a list of runs has no form for --%s", name)
		}
	}
	return o, is, err
}

// listRuns prints past runs: those of some directories, or all that are known here.
func listRuns(p process, dirs []string, o listOptions) error {
	named, places, err := placesOf(p, dirs)
	if err != nil {
		return err
	}
	known := knownRuns(places)
	switch {
	case len(known.list) > 0:
	case known.index.Err != nil:
		return notRead(known.index.Err)
	default:
		return usagef(lookedIn(named, "a run is listed from its start: rsswarden run -- COMMAND; or name a directory of --record, or one with .rsswarden in it"), "no run is listed")
	}
	for _, d := range known.index.Damage {
		p.warn(oneLine(d))
	}
	if known.index.Err != nil {
		p.warn(sentences(known.index.Err.Error()))
	}
	now := time.Now()
	rows := known.list
	if o.since > 0 {
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Start.Before(now.Add(-o.since)) })
	}
	if o.outcome != "" {
		known.read(p, rows)
		rows = slices.DeleteFunc(rows, func(r analysis.ListedRun) bool { return r.Outcome != o.outcome })
	}
	total := len(rows)
	if o.since == 0 {
		rows = rows[:min(len(rows), mostListed)]
	}
	known.read(p, rows)
	list := analysis.RunList{V: analysis.Version, Total: total, Runs: rows}
	return show(p, o.json, list, func(w io.Writer, style text.Style) error { return render.RunList(w, list, style, now) })
}

// placesOf are the directories in and below those that a user names, which may be read; by none
// all that are known here, which are the named ones then.
func placesOf(p process, dirs []string) (named, places []string, err error) {
	if len(dirs) == 0 {
		places = recordPlaces(p)
		return places, places, nil
	}
	for _, dir := range dirs {
		_, err := record.ReadDir(dir)
		switch {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, nodedir.ErrLink):
			return nil, nil, notRead(fmt.Errorf("cannot read runs in %s: %w", dir, errnoOf(err)))
		case err != nil:
			return nil, nil, usagef("name directories in which runs have left records; one run is shown by rsswarden report ID", "cannot read runs in %s: %v", dir, errnoOf(err))
		}
		places = append(places, recordDirs(dir)...)
	}
	return dirs, places, nil
}

// parseSince reads a time back from now: "7d", "36h", "2w".
func parseSince(s string) (time.Duration, error) {
	const hint = "write a number and a unit: 12h, 7d or 4w"
	units := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	if s != "" {
		if unit, ok := units[s[len(s)-1]]; ok {
			if n, err := strconv.ParseUint(s[:len(s)-1], 10, 16); err == nil && n > 0 {
				return time.Duration(n) * unit, nil
			}
		}
	}
	return 0, usagef(hint, "--since %q is not a length of time", s)
}

// printReport prints one report, or writes it to files.
func printReport(p process, c *cli.Context, args []string) error {
	asJSON, asCSV, html, svg, noSlurm := c.Bool("json"), c.Bool("csv"), c.String("html"), c.String("svg"), c.Bool("no-slurm")
	runs, err := loadRuns(p, args, !noSlurm)
	files := html != "" || svg != ""
	if len(runs) == 0 {
		// What is known of a run without a record has one form, and nothing to draw.
		var known *unrecorded
		if errors.As(err, &known) && len(args) == 1 && !asCSV && !files {
			return known.show(asJSON)
		}
		return notRead(err)
	}
	if err != nil {
		p.warn(sentences(err.Error()))
	}
	if files || !asCSV {
		now := time.Now()
		rep := analysis.Analyze(analysis.Input{Runs: runs, Slurm: slurmSays(runs, noSlurm), Now: now, Timeline: files})
		render.Explain(rep, now)
		if err := toFile(html, func(w io.Writer) error { return render.HTML(w, rep) }); err != nil {
			return err
		}
		if err := toFile(svg, func(w io.Writer) error { return render.SVG(w, rep) }); err != nil {
			return err
		}
		switch {
		case files && !asJSON && !asCSV:
			return printed(p, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, oneLine(rep.Verdict))
				return err
			})
		case !asCSV:
			return show(p, asJSON, rep, func(w io.Writer, style text.Style) error { return render.Text(w, rep, style, c.Bool("full")) })
		}
	}
	return printed(p, func(w io.Writer) error { return render.CSV(w, runs) })
}

// advise prints what all runs in the directories come to.
func advise(p process, dirs []string, asJSON bool) error {
	named, places, err := placesOf(p, dirs)
	if err != nil {
		return err
	}
	runs, err := readRuns(record.Find(places...))
	switch {
	case len(runs) == 0 && err != nil:
		return notRead(err)
	case len(runs) == 0:
		return usagef(lookedIn(named, hintNoRecord), "no run has left a record")
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
	attempt, most, nodes := 0, 0, map[string]bool{}
	for _, r := range runs {
		j := r.Meta.Job
		if j == nil || j.Restarts < attempt {
			continue
		}
		if j.Restarts > attempt {
			attempt, most, nodes = j.Restarts, 0, map[string]bool{}
		}
		nodes[r.Meta.Node] = true
		most = max(most, j.Nodes)
	}
	return most > len(nodes)
}
