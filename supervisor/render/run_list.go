package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// RunList writes a table of past runs, a row each, and what to type next.
func RunList(w io.Writer, l analysis.RunList, style text.Style, now time.Time) error {
	var b strings.Builder
	t := table{style: style, columns: []column{
		{}, {title: "ID"}, {title: "STARTED", drop: 3}, {title: "JOB", drop: 4}, {title: "OUTCOME"}, {title: "EXIT", right: true, drop: 1},
		{title: "TIME", right: true, drop: 2}, {title: "PEAK OF", drop: 5}, {title: "COMMAND", rest: true, drop: 6},
	}}
	widest := 1
	for i := range l.Runs {
		widest = max(widest, len(text.Percent(l.Runs[i].Peak)))
	}
	for i := range l.Runs {
		r := &l.Runs[i]
		exit := "-"
		if r.Exit != nil {
			exit = strconv.Itoa(*r.Exit)
		}
		ran := "-"
		if !endless(r) {
			ran = brief(analysis.Seconds(r.Seconds))
		}
		paint := gradePaint[r.Outcome.Grade()]
		t.add(
			cell{style.Glyph(Glyph(r.Outcome)), paint}, cell{r.Short, text.Bold}, cell{started(r.Start, now), ""}, cell{cmp.Or(r.Job, "-"), ""},
			cell{string(r.Outcome), paint}, cell{exit, ""}, cell{ran, ""}, cell{peakCell(r, widest), ""}, cell{analysis.ShortCommand(r.Command), ""},
		)
	}
	t.write(&b)
	count := text.Count(l.Total, "run")
	if len(l.Runs) < l.Total {
		count = fmt.Sprintf("%d of %s", len(l.Runs), count)
	}
	last := count + "."
	if len(l.Runs) > 0 {
		last += " Details: rsswarden report " + l.Runs[0].Short + "."
	}
	if len(l.Runs) < l.Total {
		last += " Older: --since 30d"
	}
	writeWrapped(&b, last, style)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeWrapped(b *strings.Builder, s string, style text.Style) {
	for _, line := range text.Wrap(s, style.Columns()) {
		b.WriteString(style.Plain(line) + "\n")
	}
}

// Listed writes what is known of a run that left its line in an index and no record.
func Listed(w io.Writer, r analysis.ListedRun, style text.Style) error {
	t, b, ran := newTextReport(nil, style), r.Brief(), ""
	if !endless(&r) {
		ran = took(b.Duration())
	}
	t.head(r.Outcome, Headline(&b), r.Short, analysis.ShortCommand(r.Command), r.Node, exitWords(r.Exit, nil), ran)
	t.b.WriteByte('\n')
	if k := t.block("Memory"); b.Peak == nil {
		k.say("", "no usage recorded")
	} else {
		k.raw(peakWords(&b, t.style, gradePaint[r.Outcome.Grade()]))
	}
	from := "the list of runs; no record of this run was found"
	switch {
	case r.Outcome == event.RunRunning:
		from = "the list of runs; there is no record of it yet. Now: rsswarden status"
	case endless(&r):
		from = "the list of runs: it has the start. At the end all was killed at once, the node failed, or it runs on another node"
	}
	t.block("From").say("", from)
	return t.write(w, "run")
}

// endless says that nothing tells when a run ended.
func endless(r *analysis.ListedRun) bool { return r.Outcome == event.RunUnknown && r.Seconds == 0 }

// limitWord is a limit in a column: the user's own is "limit".
func limitWord(n event.LimitName) string {
	if n == event.LimitUser {
		return "limit"
	}
	return string(n)
}

// started is when a run began, in this machine's zone.
func started(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	y, m, d := now.Date()
	switch today := time.Date(y, m, d, 0, 0, 0, 0, now.Location()); {
	case at.IsZero():
		return "-"
	case !at.Before(today) && at.Before(today.AddDate(0, 0, 1)):
		return "today " + at.Format("15:04")
	case at.After(now.AddDate(0, -6, 0)) && at.Before(now.AddDate(0, 0, 1)):
		return at.Format("Jan _2 15:04")
	}
	return at.Format("2006-01-02")
}

// brief is a length of time in a column: "7 s", "12 min", "8 h 3m", "3 d 2h".
func brief(d time.Duration) string {
	switch s := d.Round(time.Second); {
	case s < time.Minute:
		return fmt.Sprintf("%d s", s/time.Second)
	case s < time.Hour:
		return fmt.Sprintf("%d min", s/time.Minute)
	case s < 24*time.Hour:
		return fmt.Sprintf("%d h %dm", s/time.Hour, s%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d d %dh", s/(24*time.Hour), s%(24*time.Hour)/time.Hour)
	}
}

// peakCell is the highest use of a limit, and the limit: "94 % 1100M limit".
func peakCell(r *analysis.ListedRun, widest int) string {
	if r.Limit == "" || r.Size == 0 {
		return strings.Repeat(" ", widest-1) + "-"
	}
	number, unit, _ := strings.Cut(r.Size.Typed(), " ")
	return fmt.Sprintf("%*s %s%s %s", widest, text.Percent(r.Peak), strings.TrimSuffix(number, ".0"), unit[:1], limitWord(r.Limit))
}

// table lays cells out in columns, as wide as the widest cell of each.
type table struct {
	style   text.Style
	columns []column
	rows    [][]cell
}

type column struct {
	title string
	right bool
	drop  int  // columns go in this order where the stream is narrow; 0 stays
	rest  bool // gets what is left of the line
}

type cell struct {
	text  string
	paint text.Paint
}

func (t *table) add(cells ...cell) {
	for i := range cells {
		cells[i].text = t.style.Plain(text.Plain(cells[i].text))
	}
	t.rows = append(t.rows, cells)
}

const (
	between   = 2
	leastRest = 8 // columns of the column that gets the rest
)

func (t *table) write(b *strings.Builder) {
	widths := make([]int, len(t.columns))
	shown := make([]bool, len(t.columns))
	for i, c := range t.columns {
		shown[i] = true
		widths[i] = text.Columns(c.title)
		for _, r := range t.rows {
			widths[i] = max(widths[i], text.Columns(r[i].text))
		}
	}
	taken := func() (n int) {
		for i, c := range t.columns {
			if shown[i] && !c.rest {
				n += widths[i] + between
			}
		}
		return n
	}
	for drop := 1; taken()+leastRest > t.style.Columns() && drop <= len(t.columns); drop++ {
		for i, c := range t.columns {
			if c.drop == drop {
				shown[i] = false
			}
		}
	}
	if i := slices.IndexFunc(t.columns, func(c column) bool { return c.rest }); i >= 0 {
		widths[i] = min(widths[i], max(t.style.Columns()-taken(), leastRest))
	}
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{c.title, text.Dim}
	}
	for _, r := range slices.Concat([][]cell{titles}, t.rows) {
		line, gap := "", 1
		for i, c := range t.columns {
			if !shown[i] {
				continue
			}
			s := cutWords(r[i].text, widths[i])
			if t.style.ASCII {
				s = t.style.Plain(s)
			}
			pad := widths[i] - text.Columns(s)
			if c.right {
				gap, pad = gap+pad, 0
			}
			if s != "" {
				line += strings.Repeat(" ", gap) + t.style.Paint(r[i].paint, s)
				gap = 0
			}
			if gap += pad; c.title == "" {
				gap++
			} else {
				gap += between
			}
		}
		b.WriteString(line + "\n")
	}
}

// cutWords shortens a text to so many columns: whole words of it, or of one word both ends.
func cutWords(s string, columns int) string {
	if text.Columns(s) <= columns {
		return s
	}
	short := ""
	words := strings.Fields(s)
	for _, w := range words {
		if text.Columns(short+w)+2 > columns {
			break
		}
		short += w + " "
	}
	if short == "" {
		return text.Middle(words[0], columns)
	}
	return short + "…"
}

// Unwrapped writes what Slurm says of a job that left no record in some directories.
func Unwrapped(w io.Writer, u analysis.Unwrapped, dirs []string, style text.Style) error {
	t := newTextReport(nil, style)
	took := ""
	if d := u.Took(); d > 0 {
		took = text.Span(d)
	}
	id := u.Slurm.ID
	if u.Asked != "" {
		id += "." + u.Asked
	}
	t.head(u.Outcome, stateWords(&u), id, u.Slurm.Name, u.Slurm.NodeList, took)
	t.b.WriteByte('\n')
	used := "Slurm recorded no usage"
	switch {
	case u.MaxRSS > 0 && u.Limit > 0:
		used = fmt.Sprintf("MaxRSS %s, %s; polled, so the peak may be higher", rss.UsedOf(u.MaxRSS, u.Limit), text.Percent(u.MaxRSS.Of(u.Limit)))
	case u.MaxRSS > 0:
		used = fmt.Sprintf("MaxRSS %v; polled, so the peak may be higher", u.MaxRSS)
	}
	t.block("Memory").say("", used)
	next := t.block("Next")
	next.column = 42
	next.pair(text.Bold, "exec rsswarden run -- python train.py", "same --mem; shows what grew")
	if u.Guess > 0 {
		next.pair(text.Bold, "#SBATCH --mem="+policy.MemArg(u.Guess), "rough guess: 1.5 × limit")
	}
	from := u.Slurm.Source
	if u.Step != "" {
		from += ", step " + u.Step
	}
	t.block("From").say("", from+". No rsswarden record of this job in "+strings.Join(dirs, ", "))
	return t.write(w, "report")
}

func stateWords(u *analysis.Unwrapped) string {
	words := map[event.RunOutcome]string{
		event.RunOOM: "out of memory", event.RunSlurmKill: "out of memory, Slurm killed it", event.RunTimeout: "Slurm time limit reached",
		event.RunCancelled: "cancelled", event.RunOK: "finished", event.RunRunning: "not ended", event.RunUnknown: "ended",
	}[u.Outcome]
	state, exit := u.Ended()
	if u.Outcome == event.RunFailed {
		code, by, _ := strings.Cut(exit, ":")
		words = "command failed, exit " + code
		if n, err := strconv.Atoi(by); err == nil && n != 0 {
			words = "command killed by " + "SIG" + event.SignalName(syscall.Signal(n))
		}
	}
	return words + ": Slurm says " + state
}
