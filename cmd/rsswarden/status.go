package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func statusCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "status",
		Category:  "Look",
		Usage:     "show current runs",
		UsageText: "rsswarden status [--job ID] [--node NODE] [--all] [--json]",
		Description: "Of the rsswarden runs of this Slurm job on this node; outside a job, of all of\n" +
			"yours. Other nodes are asked by srun --overlap, in a small step of the job's,\n" +
			"which takes some of its memory for a moment.\n" +
			"Exit status: 0 when every leader has answered, else 1.",
		Flags: append(targetFlags(), jsonFlag()),
		ArgsUsage: examples(
			"rsswarden status",
			"rsswarden status --job 118 --json",
		),
	}, func(c *cli.Context) error {
		t, err := targetOf(c)
		if err != nil {
			return err
		}
		if c.Bool("as-node") {
			return remote.Serve(p.caller(), remote.Request{Every: c.Duration("every")}, p.stdout)
		}
		return printStatus(p, t, c.Bool("json"))
	})
}

// nodesJSON is what status --json prints.
type nodesJSON struct {
	V      int               `json:"v"`
	Nodes  []*control.Status `json:"nodes"`
	Errors []nodeError       `json:"errors,omitempty"`
}

// printStatus prints the statuses of all leaders, ordered by the names of their nodes.
func printStatus(p process, t remote.Target, asJSON bool) error {
	all := []*control.Status{} // to programs no node is a list too
	a, err := remote.Ask(p.caller(), t, remote.Request{}, func(s remote.Answer) {
		if s.Status != nil {
			all = append(all, s.Status)
		}
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(x, y *control.Status) int {
		return cmp.Or(cmp.Compare(len(x.Node), len(y.Node)), cmp.Compare(x.Node, y.Node), cmp.Compare(x.Leader, y.Leader))
	})
	width := math.MaxInt // nothing is cut off for a file or a pipe
	if term.IsTerminal(int(p.stdout.Fd())) {
		width = columns(p.stdout)
	}
	if err := show(p, asJSON, nodesJSON{control.Version, all, errorsOf(a.Failed)}, func(w io.Writer) error {
		for i, st := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := writeStatus(w, st, width); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return printFailures(p, a)
}

// writeStatus prints the status of one node, in lines of at most width.
func writeStatus(w io.Writer, st *control.Status, width int) error {
	var b strings.Builder
	what := "runs outside Slurm"
	if st.Job != "" {
		what = "job " + st.Job
	}
	fmt.Fprintf(&b, "%s on %s: %s\n", what, st.Node, text.Count(len(st.Procs), "process"))
	fmt.Fprintf(&b, "  led by watcher %d%s (rsswarden %s) since %s; read at %s\n",
		st.Leader, ofHolder(st), st.Version, clockOf(st.Since, st.Time), st.Time.Local().Format(time.TimeOnly))
	if n := st.Gaps.Denied + st.Gaps.Malformed; n > 0 {
		fmt.Fprintf(&b, "  %s could not be read and are in no sum\n", text.Count(n, "more process"))
	}
	writeLimits(&b, st)
	writeRanks(&b, st)
	writeDeeds(&b, st)
	writeAlerts(&b, st)
	for l := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, text.Cut(oneLine(strings.TrimRight(l, " \n")), width)); err != nil {
			return err
		}
	}
	return nil
}

// ofHolder says whose watcher leads: the process rsswarden run that started it.
func ofHolder(st *control.Status) string {
	for _, r := range st.Ranks {
		if !r.Leads || r.Holder == 0 {
			continue
		}
		if r.Task < 0 {
			return fmt.Sprintf(" of rsswarden run %d", r.Holder)
		}
		return fmt.Sprintf(" of rsswarden run %d, rank %d", r.Holder, r.Task)
	}
	return ""
}

// clockOf is a time as a clock shows it, with the day where that is another.
func clockOf(t, now time.Time) string {
	if t, now = t.Local(), now.Local(); t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func aligned(b *strings.Builder, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, "  "+strings.Join(r, "\t"))
	}
	t.Flush()
}

func writeLimits(b *strings.Builder, st *control.Status) {
	rows := [][]string{{"LIMIT", "USED", "", "OF", "FULL IN", "BY"}}
	for i := range st.Limits {
		l := &st.Limits[i]
		name := string(l.Name)
		if l.Level != "" && l.Name == event.LimitSlurm {
			name += " " + l.Level
		} else if l.ByJobSum() {
			name += " job"
		}
		if l.Binding {
			name += " *"
		}
		eta := ""
		if l.ETA != nil {
			eta = text.About(*l.ETA)
		} else if l.Flattens > 0 {
			eta = "flattens at " + l.Name.Amount(l.Flattens)
		}
		if l.Name == event.LimitTime || l.Limit == 0 {
			rows = append(rows, []string{name, "", "", "", eta, l.Enforcer})
			continue
		}
		used := l.Name.Amount(l.Used)
		if l.UsedMax > l.Used {
			used += " to " + l.Name.Amount(l.UsedMax)
		}
		by := l.Enforcer
		if l.PID != 0 {
			by += fmt.Sprintf(", process %d", l.PID)
		}
		rows = append(rows, []string{name, text.Percent(l.Ratio()), used, l.Name.Amount(l.Limit), eta, by})
	}
	if len(rows) == 1 {
		b.WriteString("  no limit is known\n")
		return
	}
	aligned(b, rows)
	for i := range st.Limits {
		if st.Limits[i].Binding {
			b.WriteString("  * " + binds(&st.Limits[i]) + "\n")
			break
		}
	}
}

// binds says why a limit is the one that binds first.
func binds(l *event.Limit) string {
	why := "is the fullest limit on memory; no growth is seen"
	switch {
	case l.ETA != nil && l.Name == event.LimitUser:
		why = "is forecast to be full first"
	case l.ETA != nil:
		return "is forecast to end the job first"
	}
	if l.Name == event.LimitUser {
		why += "; by itself it ends nothing, the rules act on it"
	}
	return why
}

func writeRanks(b *strings.Builder, st *control.Status) {
	rows := [][]string{{"RANK", "STEP", "PID", "RSS", "ANON", "FILE", "SHMEM", "PROCS", "WORKERS", "HOOK", "COMMAND"}}
	var why []string
	for _, r := range st.Ranks {
		rank, step, workers := "-", "-", strconv.Itoa(r.Workers)
		if r.Task >= 0 {
			rank = strconv.Itoa(r.Task)
		}
		if r.Step != "" {
			step = r.Step
		}
		if r.Recycled > 0 {
			workers += fmt.Sprintf(", %d new", r.Recycled)
		}
		if r.Why != "" {
			why = append(why, fmt.Sprintf("  process %d, hook %s: %s\n", r.PID, r.Hook, oneLine(r.Why)))
		}
		rows = append(rows, []string{
			rank, step, strconv.Itoa(r.PID), r.RSS.String(), r.Anon.String(), r.File.String(), r.Shmem.String(),
			strconv.Itoa(r.Procs), workers, oneLine(r.Hook), oneLine(r.Command),
		})
	}
	if len(rows) == 1 {
		return
	}
	// Room is for what tells something.
	for _, empty := range []struct {
		column int
		value  string
	}{{6, "0 B"}, {1, "-"}} {
		if !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[empty.column] != empty.value }) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], empty.column, empty.column+1)
			}
		}
	}
	aligned(b, rows)
	b.WriteString(strings.Join(why, ""))
}

// writeDeeds tells what is done, by which rules, and what came of the last.
func writeDeeds(b *strings.Builder, st *control.Status) {
	dry := ""
	if st.DryRun {
		dry = " (dry run: none is carried out)"
	}
	if len(st.Rules) > 0 {
		fmt.Fprintf(b, "  rules: %s%s\n", strings.Join(st.Rules, ", "), dry)
	}
	if a := st.Action; a != nil {
		of := ""
		if len(a.PIDs) > 0 {
			of = " of " + numbersOf(a.PIDs)
		}
		fmt.Fprintf(b, "  now: %s%s, %s, since %s\n", a.Action, of, a.Rule, clockOf(a.Since, st.Time))
	}
	for _, o := range st.Last {
		what := "done"
		if !o.OK {
			what = "not done"
		}
		if o.Reason != "" && o.Reason != event.ReasonDone {
			what += ": " + string(o.Reason)
		}
		if o.Detail != "" {
			what += " (" + o.Detail + ")"
		}
		if o.Freed > 0 {
			what += fmt.Sprintf(", %v given back", o.Freed)
		}
		of := ""
		if o.PID != 0 {
			of = fmt.Sprintf(", process %d", o.PID)
		}
		why := ""
		if o.Rule != "" {
			why = " (" + o.Rule + ")"
		}
		fmt.Fprintf(b, "  %s %s%s%s: %s\n", clockOf(o.Time, st.Time), o.Name(), why, of, what)
	}
}

// writeAlerts prints the state of each receiver of --alert.
func writeAlerts(b *strings.Builder, st *control.Status) {
	for _, a := range st.Alerts {
		fmt.Fprintf(b, "  alerts to %s: %d firing, %d sent", a.Receiver, a.Firing, a.Sent)
		for _, n := range []struct {
			n    int
			what string
		}{{a.Untold, "not told yet"}, {a.Failed, "failed"}, {a.Overtaken, "overtaken by a newer state"}, {a.Lost, "lost"}} {
			if n.n > 0 {
				fmt.Fprintf(b, ", %d %s", n.n, n.what)
			}
		}
		if a.Held {
			b.WriteString(", waits: too little is left before a limit to tell it")
		}
		if a.SentAt != nil {
			fmt.Fprintf(b, "; the last taken at %s", clockOf(*a.SentAt, st.Time))
		}
		if a.Error != "" && a.FailedAt != nil {
			fmt.Fprintf(b, "; failed at %s: %s", clockOf(*a.FailedAt, st.Time), oneLine(a.Error))
		}
		b.WriteByte('\n')
	}
}
