package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

func trimCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "trim",
		Usage:     "have processes give mapped file pages back, once",
		UsageText: "rsswarden trim [--pid PID] [--drop] [--dry-run] [--json]\nrsswarden trim [--job ID] [--node NODE] [--rank N]... [--all] [--json]",
		Description: "Of the process PID, or of all of yours that this Slurm job has on this node.\n" +
			"ptrace stops each for a millisecond or two at a time. What it has mapped\n" +
			"shared and read-only from files leaves its RSS and stays in the page cache.\n" +
			"Exit status: 0, also when there was nothing to trim; 1 when every process was\n" +
			"refused. INT, TERM and HUP end it between two stops; what was done is printed.\n" +
			"With --job, --node, --rank or --all the rsswarden run that leads there is asked\n" +
			"to do it, in the run's own way. Outside a job --pid, --job or --all is needed.\n" +
			"Exit status then: 0 when all did it, else 1.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "pid", Usage: "of the process `PID` and no other"},
			&cli.BoolFlag{Name: "drop", Usage: "drop the files from the page cache too; they are read again"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what could be given back, touch nothing"},
			&cli.StringSliceFlag{Name: "rank", Usage: "of rank `N` alone (SLURM_PROCID); may be given several times"},
		}, targetFlags(), []cli.Flag{jsonFlag()}),
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
		all, err := toTrim(p, c)
		if err != nil {
			return err
		}
		return withStatus(trimAll(p, all, trimOptions{drop: c.Bool("drop"), dry: c.Bool("dry-run"), json: c.Bool("json")}))
	})
}

type trimOptions struct{ drop, dry, json bool }

// toTrim finds the processes that are meant.
func toTrim(p process, c *cli.Context) ([]*trimmed, error) {
	const like = "rsswarden trim --pid"
	if c.IsSet("pid") {
		pid, err := strconv.Atoi(c.String("pid"))
		if err != nil || pid <= 0 {
			return nil, usagef("give the number that ps shows: "+like+" 4711", "--pid %q is not a PID", c.String("pid"))
		}
		id, err := checkTarget("/proc", pid, like)
		if err != nil {
			return nil, err
		}
		return []*trimmed{{id: id}}, nil
	}
	job, ok := slurm.FromEnv(p.lookup)
	if !ok {
		return nil, usagef(like+" 4711", "this is no Slurm job, and no --pid was given")
	}
	ids, err := population.JobProcesses("/proc", "/sys", job.ID, os.Getpid())
	if err != nil {
		return nil, err
	}
	var all []*trimmed
	for _, id := range ids {
		if ours(id.PID) && !isRsswarden(id.PID) {
			all = append(all, &trimmed{id: id})
		}
	}
	if len(all) == 0 {
		host, _ := os.Hostname()
		return nil, usagef(fmt.Sprintf("squeue -j %s -o %%N tells on which nodes it runs; name a process: %s 4711", job.ID, like),
			"job %s has no process of yours on this node (%s)", job.ID, host)
	}
	return all, nil
}

// isRsswarden says that a process is a holder, a watcher or the like: it runs
// our program, or one of that name.
func isRsswarden(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	self, err := os.Readlink("/proc/self/exe")
	return err == nil && exe == self || strings.TrimSuffix(filepath.Base(exe), " (deleted)") == programName
}

// trimAll does all of it and prints what came of it.
func trimAll(p process, all []*trimmed, o trimOptions) (status int, err error) {
	t := &trimmer{pause: newInterlude(), drops: o.drop}
	for _, s := range all {
		t.plan(s)
	}
	if len(all) > 1 {
		// Of what has ended since the job was listed nobody asked for news.
		all = slices.DeleteFunc(all, func(s *trimmed) bool { return s.refused == trim.Vanished })
	}
	slices.SortStableFunc(all, func(a, b *trimmed) int { return cmp.Compare(b.mapped, a.mapped) })
	if !o.dry {
		t.trim(all)
	}
	r := trimReport{processes: all, dropped: t.dropped, trimOptions: o, cut: t.pause.told() != 0}
	if err := r.print(p.stdout); err != nil {
		return exitCannotRun, fmt.Errorf("cannot print what was trimmed: %w", plain(err))
	}
	if s := t.pause.told(); s != 0 {
		dieBy(s)
	}
	refused := func(s *trimmed) bool { return s.refused != trim.None && s.pieces == 0 }
	if len(all) > 0 && !slices.ContainsFunc(all, func(s *trimmed) bool { return !refused(s) }) {
		fmt.Fprint(p.stderr, line("", "error", "nothing was trimmed, every process was refused", r.hint()))
		return exitRefused, nil
	}
	return exitOK, nil
}

// trimReport is what `rsswarden trim` prints.
type trimReport struct {
	processes []*trimmed
	dropped   []droppedFile
	cut       bool // a signal ended it before all was done
	trimOptions
}

// hint is what helps where processes were refused, if anything does.
func (r *trimReport) hint() string {
	if slices.ContainsFunc(r.processes, func(s *trimmed) bool { return s.refused == trim.Stranger }) {
		return "Yama lets ancestors alone trace: run the job under rsswarden run --trim ptrace"
	}
	if slices.ContainsFunc(r.processes, func(s *trimmed) bool { return s.refused == trim.OtherUser }) {
		return "only its own user may trim a process: ask for it as the user who ran the job"
	}
	return ""
}

func (r *trimReport) print(out *os.File) error {
	if r.json {
		return writeJSON(out, r.forPrograms())
	}
	var b strings.Builder
	r.forPeople(&b)
	_, err := out.WriteString(b.String())
	return err
}

// trimmedJSON and droppedJSON are what --json prints. What was not measured is
// null.
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
	for _, s := range r.processes {
		j := trimmedJSON{PID: s.id.PID, Comm: s.comm, Mapped: s.mapped, Detail: s.detail}
		if s.before != nil {
			j.Before, j.Stop = &s.before.RSS, new(float64)
			*j.Stop = s.stop.Seconds()
		}
		if s.after != nil {
			freed := s.freed()
			j.After, j.Freed = &s.after.RSS, &freed
		}
		if s.refused != trim.None {
			reason := s.refused.Reason()
			j.Refused = &reason
		}
		out.Processes = append(out.Processes, j)
	}
	for _, d := range r.dropped {
		j := droppedJSON{Path: d.Path}
		if d.err != nil {
			j.Error = d.err.Error()
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
	for _, s := range r.processes {
		mapped, freed, tried = mapped+s.mapped, freed+s.freed(), tried || s.before != nil
		fmt.Fprintf(t, "%d\t%s\t%s\t", s.id.PID, oneLine(s.comm), known(s.planned, s.mapped.String()))
		if !r.dry {
			fmt.Fprintf(t, "%s\t%s\t", known(s.after != nil, s.freed().String()),
				known(s.before != nil, fmt.Sprintf("%.1f ms", 1e3*s.stop.Seconds())))
		}
		fmt.Fprintln(t, oneLine(s.note()))
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
	for _, d := range r.dropped {
		fmt.Fprintln(w, oneLine(d.String()))
	}
	if r.cut {
		fmt.Fprintln(w, "a signal ended it before all was done")
	}
}

// known leaves out a number that there is not.
func known(is bool, number string) string {
	if !is {
		return "-"
	}
	return number
}

// note says what the numbers of a process do not.
func (s *trimmed) note() string {
	var all []string
	switch {
	case s.refused != trim.None:
		why := string(s.refused.Reason())
		if s.pieces > 0 {
			why = "not all of it: " + why
		}
		if s.detail != "" {
			why += " (" + s.detail + ")"
		}
		all = append(all, why)
	case s.mapped == 0:
		all = append(all, string(event.ReasonNothing))
	}
	if s.changed > 0 {
		all = append(all, fmt.Sprintf("%d pieces of it were mapped otherwise by then", s.changed))
	}
	return strings.Join(all, "; ")
}

// String gives "2.10 GiB of /data/train.lmdb left the page cache and …".
func (d *droppedFile) String() string {
	switch {
	case d.err != nil:
		return d.err.Error()
	case !d.Measured:
		return fmt.Sprintf("%s was dropped from the page cache, where nobody maps it; how much left is not measured (the kernel tells its owner, since Linux 6.5)", d.Path)
	}
	said := fmt.Sprintf("%v of %s left the page cache and will be read again from disk", d.Before.Sub(d.After), d.Path)
	if d.After > 0 {
		said += fmt.Sprintf("; %v stay: mapped elsewhere, or not written back", d.After)
	}
	return said
}
