package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

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
