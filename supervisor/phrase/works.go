package phrase

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Works says what a ladder's actions can do for one limit.
type Works struct {
	Limit      event.LimitName  `json:"limit"`
	Accounting event.Accounting `json:"accounting,omitempty"`
	Helps      []event.Action   `json:"helps"` // those that can lower its use
	Says       string           `json:"says"`
}

// WhatWorks says so for each limit, those of one name and accounting once. It asks what a
// run asks, [event.Action.Fits]; unable says why an action cannot be carried out here at
// all, where that is known.
func WhatWorks(limits []event.Limit, rules []event.Rule, unable map[event.Action]string) (all []Works) {
	for i := range limits {
		l := &limits[i]
		if !slices.ContainsFunc(all, func(w Works) bool { return w.Limit == l.Name && w.Accounting == l.Accounting }) {
			all = append(all, works(l, rules, unable))
		}
	}
	return all
}

func works(l *event.Limit, rules []event.Rule, unable map[event.Action]string) Works {
	w := Works{Limit: l.Name, Accounting: l.Accounting, Helps: []event.Action{}}
	var seen, others []event.Action
	var reasons []string
	useless := map[string][]event.Action{} // by the reason
	for _, r := range rules {
		if !r.Matches(l.Name) || slices.Contains(seen, r.Action) {
			continue
		}
		seen = append(seen, r.Action)
		why := unable[r.Action]
		if fits := r.Action.Fits(l); !fits.OK {
			why = fits.Detail
		}
		switch {
		case !r.Action.Frees():
			others = append(others, r.Action)
		case why == "":
			w.Helps = append(w.Helps, r.Action)
		default:
			if useless[why] == nil {
				reasons = append(reasons, why)
			}
			useless[why] = append(useless[why], r.Action)
		}
	}
	if len(seen) == 0 {
		w.Says = fmt.Sprintf("no rule looks at it; add one: --at '%s 80%%:warn'", l.Name)
		if l.Name == event.LimitTime {
			w.Says = "no rule looks at it; add one: --at 'time eta<10m:warn'"
		}
		return w
	}
	var parts []string
	if h := w.Helps; len(h) > 0 {
		if trims := func(a event.Action) bool { return a.Row().Trims }; l.Accounting == event.AccountingPSS && slices.ContainsFunc(h, trims) {
			h = slices.DeleteFunc(slices.Clone(h), trims)
			parts = append(parts, "trims help once all processes drop a page")
		}
		if len(h) > 0 {
			parts = append(parts, plural(h)+" help")
		}
	} else {
		parts = append(parts, text.List(others, text.All)+" only")
	}
	if len(useless) == 0 && len(w.Helps) == 0 && l.Name.Thing() != "" {
		parts = append(parts, "no action frees "+l.Name.Thing())
	}
	for _, why := range reasons {
		parts = append(parts, plural(useless[why])+" do not: "+why)
	}
	w.Says = strings.Join(parts, "; ")
	return w
}

// plural names actions as what is done many times: "trims and recycles".
func plural(actions []event.Action) string {
	var all []string
	for _, a := range actions {
		all = append(all, a.Row().Thing+"s")
	}
	return text.List(all, text.All)
}

// worksIndent is the column of what works on a limit, beside its name.
const worksIndent = 12

// PrintWorks ends what people read of limits: a line for each.
func PrintWorks(w io.Writer, all []Works, columns int) {
	if len(all) > 0 {
		fmt.Fprintln(w, "\nwhat works on each limit:")
	}
	for _, one := range all {
		for _, line := range text.Hang("  "+string(one.Limit), worksIndent, text.Plain(one.Says), columns) {
			fmt.Fprintln(w, line)
		}
	}
}

// absent says why there is none of a limit on memory, and what to do instead.
var absent = map[event.LimitName]string{
	event.LimitCgroup:   "no cgroup limits memory here",
	event.LimitThrottle: "there is no memory.high below memory.max",
	event.LimitSlurm:    "Slurm enforces no memory limit here",
	event.LimitNode:     "a cgroup limits memory here",
}

// Unmatched names the rules for a limit on memory that there is none of, a line for each.
// One may come later, as a site sets it on a job that runs.
func Unmatched(rules []event.Rule, limits []event.Limit) (lines []string) {
	for _, r := range rules {
		if absent[r.Limit] == "" || slices.ContainsFunc(limits, func(l event.Limit) bool { return l.Name == r.Limit && l.Limit > 0 }) {
			continue
		}
		lines = append(lines, fmt.Sprintf("rule %q does not fire: %s; see rsswarden limits", r, absent[r.Limit]))
	}
	return lines
}
