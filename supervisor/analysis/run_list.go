package analysis

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// RunList is a list of past runs, the newest first. It is the wire form of report --json
// where no run is named.
type RunList struct {
	V     int         `json:"v"`
	Total int         `json:"total"` // runs that are known; Runs may be fewer
	Runs  []ListedRun `json:"runs"`
}

// ListedRun is one run of a list. The ranks of a step are one, on all its nodes: the entry is
// that of the rank which fared worst.
type ListedRun struct {
	record.IndexEntry
	Ranks int `json:"ranks,omitempty"` // 0 for one
}

// ListRuns makes a list of entries in any order. Entries without an outcome are taken for
// less than any other.
func ListRuns(entries []record.IndexEntry) []ListedRun {
	record.Shorten(entries)
	slices.SortFunc(entries, func(a, b record.IndexEntry) int { return cmp.Compare(b.ID, a.ID) })
	type step struct {
		job, step string
		restart   int
	}
	type place struct{ node, task string }
	type group struct {
		at   int // in list
		seen map[place]bool
	}
	open := map[step]*group{}
	list := make([]ListedRun, 0, len(entries))
	for _, e := range entries {
		name, task, ok := stepOfID(e.ID)
		if !ok {
			list = append(list, ListedRun{IndexEntry: e})
			continue
		}
		key, here := step{e.Job, name, e.Restart}, place{e.Node, task}
		g := open[key]
		if g == nil || g.seen[here] { // a rank that is there twice is of another run in the step
			g = &group{len(list), map[place]bool{}}
			open[key] = g
			list = append(list, ListedRun{IndexEntry: e})
		} else {
			list[g.at].join(e)
		}
		g.seen[here] = true
	}
	return list
}

func (r *ListedRun) join(e record.IndexEntry) {
	ranks, longest := max(r.Ranks, 1)+1, max(r.Seconds, e.Seconds)
	peak := &r.IndexEntry
	if e.Peak > peak.Peak {
		peak = &e
	}
	limit, share, size := peak.Limit, peak.Peak, peak.Size
	if severity(e.Outcome) > severity(r.Outcome) {
		r.IndexEntry = e
	}
	r.Limit, r.Peak, r.Size = limit, share, size
	r.Ranks, r.Seconds = ranks, longest
}

// severity is how much an outcome of one rank says of all.
func severity(o event.RunOutcome) int {
	i := slices.Index(event.RunOutcomes, o)
	if i < 0 {
		return -1
	}
	return len(event.RunOutcomes) - i // in the order of their rules, of which the first that holds decides
}

// stepOfID is the step and task that the ID of a run has; ok is false for what ran outside
// a step.
func stepOfID(id string) (step, task string, ok bool) {
	parts := strings.SplitN(id, "-", 4)
	if len(parts) != 4 {
		return "", "", false
	}
	f := strings.Split(parts[1], ".")
	if len(f) != 3 {
		return "", "", false
	}
	return f[1], f[2], true
}

// Entry is what the list shows of a run that has no line in an index: what its report says.
// alive says that its command still runs.
func Entry(r *record.Run, alive bool, now time.Time) record.IndexEntry {
	m := &r.Meta
	e := record.IndexEntry{
		V: record.Version, ID: m.ID, Start: m.Start.Round(time.Second), Node: m.Node,
		User: strconv.Itoa(m.UID), Command: text.Command(m.Command, record.MostListed),
	}
	if m.Job != nil {
		e.Job, e.Array, e.Restart = m.Job.ID, slurm.ArrayTask(m.Job.ArrayJob, m.Job.ArrayTask), m.Job.Restarts
	}
	r.Live = alive && r.Exit() == nil
	rep := Analyze(Input{Runs: []*record.Run{r}, Now: now})
	b := rep.Brief
	e.Outcome, e.Seconds = b.Outcome, math.Round(b.Took*10)/10
	e.SetEnd(b.Code, b.Signal, b.Peak)
	e.IndexSums = SumsOf(&b, nil, "")
	if i := slices.IndexFunc(rep.Findings, func(d Diagnosis) bool { return d.Confidence != event.Possible }); i >= 0 {
		e.Grew = rep.Findings[i].Finding
	}
	return e
}

// Brief is what can be said of a run by its row.
func (r *ListedRun) Brief() Brief {
	b := Brief{ID: r.Short, Job: r.Job, Node: r.Node, Command: strings.Fields(ShortCommand(r.Command)), Code: r.Exit}
	b.Outcome, b.Took = r.Outcome, r.Seconds
	if r.Signal != "" {
		b.Signal, b.Code = &r.Signal, nil
	}
	if r.Limit != "" {
		b.Peak = &event.Limit{Name: r.Limit, Used: r.Size.Scale(r.Peak), Limit: r.Size}
		b.Memory = event.MemoryAt(b.Peak)
	}
	return b
}

// script is the script or program of a command line: "train.py".
func script(command string) string {
	words := strings.Fields(command)
	for _, w := range words {
		if strings.HasSuffix(w, ".py") {
			return w[strings.LastIndexByte(w, '/')+1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	return words[0][strings.LastIndexByte(words[0], '/')+1:]
}

// ShortCommand is a command line without what runs a script: "train.py --epochs 4".
func ShortCommand(command string) string {
	first, rest, ok := strings.Cut(command, " ")
	first = first[strings.LastIndexByte(first, '/')+1:]
	if version, python := strings.CutPrefix(first, "python"); python && ok && strings.Trim(version, "0123456789.") == "" && !strings.HasPrefix(rest, "-") {
		script, args, _ := strings.Cut(rest, " ")
		first, rest = script[strings.LastIndexByte(script, '/')+1:], args
	}
	return strings.TrimSpace(first + " " + rest)
}
