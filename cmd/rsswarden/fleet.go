package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// sumUp prints what the jobs in and below some directories come to, by none those that are known
// here, with those of which sacct has a line in AdminComment.
func sumUp(p process, dirs []string, o listOptions) error {
	named, places, err := placesOf(p, dirs)
	if err != nil {
		return err
	}
	var unread []string
	more := false
	if len(dirs) > 0 {
		places, unread, more = record.Below(dirs...)
	}
	now := time.Now()
	since := now.Add(-o.since)
	known, entries := gatherRuns(places)
	listed := len(entries)
	if o.since > 0 {
		entries = slices.DeleteFunc(entries, func(e record.IndexEntry) bool { return e.Start.Before(since) })
	}
	left := known.ends(p, entries)
	var jobs analysis.FleetJobs
	jobs.AddRuns(entries)
	var notes []string
	var silent error
	if o.since > 0 && !o.noSlurm {
		ctx, cancel := context.WithTimeout(context.Background(), sumPatience)
		silent = slurm.Accounted(ctx, outputLines, since, len(dirs) > 0, jobs.AddAccounted)
		cancel()
	}
	said := ""
	if silent != nil && !errors.Is(silent, exec.ErrNotFound) { // else there is no Slurm here
		said = "; " + silent.Error()
		notes = append(notes, "jobs without a record are left out: "+silent.Error())
	}
	fleet := jobs.Sum(o.by, o.outcome)
	if listed == 0 && fleet.Sum.Jobs+fleet.Untold == 0 {
		if known.index.Err != nil {
			return notRead(known.index.Err)
		}
		return usagef(lookedIn(named, "a run is listed from its start: rsswarden run -- COMMAND; or name directories below which runs have left records"), "no run is listed%s", said)
	}
	fleet.Days, fleet.Unreadable = int(o.since.Hours()/24), len(unread)
	if len(unread) > 0 {
		notes = append(notes, fmt.Sprintf("may not be read, so jobs in it are left out: %s", text.List(unread, 3)))
	}
	if more {
		notes = append(notes, "there are more directories than are looked through: name those that hold .rsswarden")
	}
	if left > 0 {
		notes = append(notes, text.Count(left, "run")+" have no end in a list, and their records are not read: too many")
	}
	notes = append(notes, known.index.Damage...)
	if known.index.Err != nil {
		notes = append(notes, sentences(known.index.Err.Error()))
	}
	fleet.Notes = notes
	if o.html != "" {
		if err := toFile(o.html, func(w io.Writer) error { return render.FleetHTML(w, fleet, now) }); err != nil {
			return err
		}
		if !o.json {
			return printed(p, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text.Count(fleet.Sum.Jobs, "job")+" in "+o.html)
				return err
			})
		}
	}
	return show(p, o.json, fleet, func(w io.Writer, style text.Style) error { return render.Fleet(w, fleet, style) })
}

// ends reads the runs of which no index has the end, and counts those that are too many.
func (k *runsKnown) ends(p process, entries []record.IndexEntry) (left int) {
	var rows []analysis.ListedRun
	var at []int
	for i := range entries {
		e := &entries[i]
		_, bare := k.bare[e.ID]
		if bare || e.Outcome == "" || e.Outcome == event.RunRunning {
			rows, at = append(rows, analysis.ListedRun{IndexEntry: *e}), append(at, i)
		}
		if bare {
			left++
		}
	}
	k.read(p, rows)
	for i := range rows {
		entries[at[i]] = rows[i].IndexEntry
	}
	return max(0, left-mostRead)
}
