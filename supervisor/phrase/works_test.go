package phrase

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestWhatWorks: every limit with every accounting under the rules of a run without options,
// and other rules, and what cannot be carried out.
func TestWhatWorks(t *testing.T) {
	rules := func(of ...string) (all []event.Rule) {
		for _, s := range of {
			r, err := event.ParseRule(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		return all
	}
	usual := rules("80%:warn", "85%:trim", "90%:recycle", "maps 80%:warn", "fds 80%:warn", "commit 80%:warn", "shm 80%:warn", "tasks 80%:warn")
	var b strings.Builder
	show := func(title string, limits []event.Limit, rules []event.Rule, unable map[event.Action]string) {
		fmt.Fprintf(&b, "# %s\n", title)
		all := WhatWorks(limits, rules, unable)
		for _, w := range all {
			fmt.Fprintf(&b, "%s %s: helps %v\n", w.Limit, w.Accounting, w.Helps)
		}
		PrintWorks(&b, all, 80)
		b.WriteString("\n")
	}
	var all []event.Limit
	for _, name := range event.Limits {
		if !name.Memory() {
			all = append(all, event.Limit{Name: name})
			continue
		}
		for _, a := range []event.Accounting{event.AccountingRSS, event.AccountingPSS, event.AccountingNoShared, event.AccountingCgroup, event.AccountingVirtual, ""} {
			all = append(all, event.Limit{Name: name, Accounting: a})
		}
	}
	nearest := []event.Limit{
		{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Scope: event.ScopeStep}, {Name: event.LimitSlurm, Accounting: event.AccountingPSS, Scope: event.ScopeJob},
		{Name: event.LimitCgroup, Accounting: event.AccountingCgroup}, {Name: event.LimitSHM},
	}
	show("every limit", all, usual, nil)
	show("the hook is off", nearest, usual, map[event.Action]string{event.ActionTrim: "the loader hook is off", event.ActionRecycle: "the loader hook is off"})
	show("more rules", nearest, append(usual, rules("92%:gc", "95%:signal=USR2", "97%:stop", "shm 90%:trim")...), nil)
	show("stop alone", nearest, rules("97%:stop"), nil)
	show("no rule", nearest, nil, nil)
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(line)) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	golden.Check(t, "testdata/works.txt", b.String())
}

// TestUnmatched: a rule for a limit on memory that there is none of is named.
func TestUnmatched(t *testing.T) {
	var rules []event.Rule
	for _, text := range []string{"80%:warn", "throttle 80%:trim", "slurm 95%:stop", "user 90%:warn", "maps 80%:warn", "time eta<5m:warn"} {
		r, err := event.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	limits := []event.Limit{{Name: event.LimitUser, Limit: 1}, {Name: event.LimitSlurm, Limit: 1}, {Name: event.LimitThrottle}}
	lines := Unmatched(rules, limits)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `rule "throttle 80%:trim" does not fire: there is no memory.high`) {
		t.Errorf("said %q", lines)
	}
	for name := range absent {
		if !name.Memory() || name == event.LimitUser {
			t.Errorf("%s is not looked for at the start", name)
		}
	}
}
