package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/trim/once"
)

func trimCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "trim",
		Usage:     "drop mapped file pages of processes now",
		UsageText: "rsswarden trim [--pid PID] [--drop] [--dry-run] [--json]\nrsswarden trim [--job ID] [--node NODE] [--rank N]... [--all] [--json]",
		Description: "Trims the process PID, or all of yours that this Slurm job has on this node.\n" +
			"ptrace stops each for a millisecond or two at a time. Pages that it has\n" +
			"mapped from files no longer count in its RSS and stay in the page cache.\n" +
			"Exit status: 0, also when there was nothing to trim; 1 when every process was\n" +
			"refused. INT, TERM and HUP end it between two stops; what was done is printed.\n" +
			"With --job, --node, --rank or --all that run trims, by its own --trim; exit\n" +
			"status 1 then if not all did. Outside a job --pid, --job or --all is needed.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "pid", Usage: "trim the process `PID` and no other"},
			&cli.BoolFlag{Name: "drop", Usage: "drop the files from the page cache too; they are read again"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what could be given back, touch nothing"},
			&cli.StringSliceFlag{Name: "rank", Usage: "only rank `N` (SLURM_PROCID); may be given several times"},
		}, targetFlags(), []cli.Flag{jsonFlag(), colorFlag(p)}),
		ArgsUsage: examples(
			"rsswarden trim --pid 4711 --dry-run",
			"rsswarden trim --job 118 --rank 0",
		),
	}, func(c *cli.Context) error {
		if t, q, yes, err := trimByLeader(p, c); err != nil {
			return err
		} else if yes {
			return askLeaders(p, c, t, q)
		}
		ids, err := toTrim(p, c)
		if err != nil {
			return err
		}
		return trimProcesses(p, ids, trimOptions{drop: c.Bool("drop"), dry: c.Bool("dry-run"), json: c.Bool("json")})
	})
}

type trimOptions struct{ drop, dry, json bool }

// toTrim finds the processes to trim.
func toTrim(p process, c *cli.Context) ([]rss.ProcID, error) {
	const like = "rsswarden trim --pid"
	if c.IsSet("pid") {
		id, err := checkTarget("--pid ", c.String("pid"), like)
		return []rss.ProcID{id}, err
	}
	job, ok := slurm.FromEnv(p.lookup)
	if !ok {
		return nil, usagef(like+" 4711", "this is no Slurm job, and no --pid was given")
	}
	members, err := population.NewFinder("/proc", "/sys", job.ID, "", os.Getpid()).Find()
	if err != nil {
		return nil, err
	}
	var ids []rss.ProcID
	for _, m := range members {
		if sameUser(m.ID.PID) && !isRsswarden(m.ID.PID) {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		host, _ := os.Hostname()
		return nil, usagef(fmt.Sprintf("squeue -j %s -o %%N tells on which nodes it runs; name a process: %s 4711", job.ID, like),
			"job %s has no process of yours on this node (%s)", job.ID, host)
	}
	return ids, nil
}

// trimProcesses trims and prints what came of it.
func trimProcesses(p process, ids []rss.ProcID, o trimOptions) error {
	r := trimReport{trimOptions: o, Result: once.Trim(ids, once.Options{Drop: o.drop, DryRun: o.dry, Ours: isRsswarden, Ends: interrupts(), DieBy: dieBy})}
	if err := show(p, o.json, r.forPrograms(), func(w io.Writer, _ text.Style) error {
		r.forPeople(w)
		return nil
	}); err != nil {
		return err
	}
	if s := r.Signal(); s != 0 {
		dieBy(s)
	}
	refused := func(s *once.Target) bool { return s.Refused != trim.None && s.Pieces == 0 }
	if len(r.Targets) > 0 && !slices.ContainsFunc(r.Targets, func(s *once.Target) bool { return !refused(s) }) {
		fmt.Fprint(p.stderr, p.line("", "error", "nothing was trimmed, every process was refused", r.refusedHint()))
		return exitStatus(exitFailed)
	}
	return nil
}

// trimReport is what `rsswarden trim` prints.
type trimReport struct {
	once.Result
	trimOptions
}

// refusedHint is what helps where processes were refused, if anything does.
func (r *trimReport) refusedHint() string {
	if slices.ContainsFunc(r.Targets, func(s *once.Target) bool { return s.Refused == trim.Stranger }) {
		return "Yama lets ancestors alone trace: run the job under rsswarden run --trim ptrace"
	}
	if slices.ContainsFunc(r.Targets, func(s *once.Target) bool { return s.Refused == trim.OtherUser }) {
		return "only its own user may trim a process: ask for it as the user who ran the job"
	}
	return ""
}

// trimmedJSON and droppedJSON are what --json prints; null is what was not measured.
type trimmedJSON struct {
	PID     int           `json:"pid"`
	Comm    string        `json:"comm"`
	Mapped  rss.Bytes     `json:"mapped_bytes"`
	Before  *rss.Bytes    `json:"rss_before_bytes"`
	After   *rss.Bytes    `json:"rss_after_bytes"`
	Freed   *rss.Bytes    `json:"freed_bytes"`
	Stop    *float64      `json:"stop_s"`
	Refused *event.Reason `json:"refused"`
	Detail  string        `json:"detail"`
}

type droppedJSON struct {
	Path   string     `json:"path"`
	Before *rss.Bytes `json:"before_bytes"`
	After  *rss.Bytes `json:"after_bytes"`
	Error  string     `json:"error"`
}

func (r *trimReport) forPrograms() any {
	out := struct {
		Processes []trimmedJSON `json:"processes"`
		Dropped   []droppedJSON `json:"dropped"`
	}{[]trimmedJSON{}, []droppedJSON{}}
	for _, s := range r.Targets {
		j := trimmedJSON{PID: s.ID.PID, Comm: s.Comm, Mapped: s.Mapped, Detail: s.Detail}
		if s.Before != nil {
			j.Before, j.Stop = &s.Before.RSS, new(float64)
			*j.Stop = s.Stop.Seconds()
		}
		if s.After != nil {
			freed := s.Freed()
			j.After, j.Freed = &s.After.RSS, &freed
		}
		if s.Refused != trim.None {
			reason := s.Refused.Reason()
			j.Refused = &reason
		}
		out.Processes = append(out.Processes, j)
	}
	for _, d := range r.Dropped {
		j := droppedJSON{Path: d.Path}
		if d.Err != nil {
			j.Error = d.Err.Error()
		} else if d.Measured {
			j.Before, j.After = &d.Before, &d.After
		}
		out.Dropped = append(out.Dropped, j)
	}
	return out
}

func (r *trimReport) forPeople(w io.Writer) {
	var rows strings.Builder
	t := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	head := "PID\tCOMMAND\tMAPPED, RESIDENT\tGAVE BACK\tLONGEST STOP\tNOTE"
	if r.dry {
		head = "PID\tCOMMAND\tMAPPED, RESIDENT\tNOTE"
	}
	fmt.Fprintln(t, head)
	var mapped, freed rss.Bytes
	tried := false
	for _, s := range r.Targets {
		mapped, freed, tried = mapped+s.Mapped, freed+s.Freed(), tried || s.Before != nil
		fmt.Fprintf(t, "%d\t%s\t%s\t", s.ID.PID, oneLine(s.Comm), orDash(s.Planned, s.Mapped.String()))
		if !r.dry {
			fmt.Fprintf(t, "%s\t%s\t", orDash(s.After != nil, s.Freed().String()),
				orDash(s.Before != nil, fmt.Sprintf("%.1f ms", 1e3*s.Stop.Seconds())))
		}
		fmt.Fprintln(t, oneLine(trimNote(s)))
	}
	t.Flush()
	for row := range strings.Lines(rows.String()) {
		fmt.Fprintln(w, strings.TrimRight(row, " \n"))
	}
	switch {
	case r.dry:
		fmt.Fprintf(w, "%v could be given back at most; nothing was touched\n", mapped)
	case r.drop && tried:
		fmt.Fprintf(w, "%v given back in all\n", freed)
	case tried:
		fmt.Fprintf(w, "%v given back in all; the pages stay in the page cache, and in a cgroup's charge\n", freed)
	}
	for _, d := range r.Dropped {
		fmt.Fprintln(w, oneLine(droppedNote(&d)))
	}
	if r.Signal() != 0 {
		fmt.Fprintln(w, "a signal ended it before all was done")
	}
}

// orDash leaves out a number that there is not.
func orDash(is bool, number string) string {
	if !is {
		return "-"
	}
	return number
}

// trimNote says what the numbers of a process do not.
func trimNote(s *once.Target) string {
	var all []string
	switch {
	case s.Refused != trim.None:
		why := string(s.Refused.Reason())
		if s.Pieces > 0 {
			why = "not all of it: " + why
		}
		if s.Detail != "" {
			why += " (" + s.Detail + ")"
		}
		all = append(all, why)
	case s.Mapped == 0:
		all = append(all, string(event.ReasonNothing))
	}
	if s.Changed > 0 {
		all = append(all, fmt.Sprintf("%d pieces of it were mapped otherwise by then", s.Changed))
	}
	return strings.Join(all, "; ")
}

// droppedNote is "2.10 GiB of /data/train.lmdb left the page cache and …".
func droppedNote(d *once.DroppedFile) string {
	switch {
	case d.Err != nil:
		return d.Err.Error()
	case !d.Measured:
		return fmt.Sprintf("%s was dropped from the page cache, except for mapped pages; how much left is not measured (the kernel tells its owner, since Linux 6.5)", d.Path)
	}
	said := fmt.Sprintf("%v of %s left the page cache and will be read again from disk", d.Before.Sub(d.After), d.Path)
	if d.After > 0 {
		said += fmt.Sprintf("; %v stay: mapped elsewhere, or not written back", d.After)
	}
	return said
}
