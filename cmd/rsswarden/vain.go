package main

import (
	"fmt"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file finds what a user asked for and cannot have, before the command is started.

// inVain says of rules of a user's that name a limit which this run cannot have that they
// never fire. Those of a site are for all jobs, and some of them are always in vain.
func inVain(s *supervisor.Settings, inSlurm bool) (said []string) {
	if s.RulesOfSite() {
		return nil
	}
	for _, r := range s.Rules {
		switch {
		case r.Limit == event.LimitUser && s.Limit == 0 && s.LimitShare == 0:
			said = append(said, fmt.Sprintf("the rule %q can never fire: no --limit is given; add --limit SIZE, or leave the word user out", r))
		case r.Limit == event.LimitTime && !inSlurm:
			said = append(said, fmt.Sprintf("the rule %q can never fire: this is no Slurm job; submit it with sbatch, or leave the rule out", r))
		}
	}
	if s.Requeues() && !inSlurm {
		said = append(said, "this is no Slurm job: rules with requeue do nothing here")
	}
	return said
}

// neverFree refuses a rule of a user's that wants more left of --limit than there is.
func neverFree(at, limit chosen, s *supervisor.Settings) error {
	if s.Limit == 0 || !at.user() {
		return nil
	}
	for _, r := range s.Rules {
		if r.Cond.Kind != event.KindFree || r.Cond.Free < s.Limit || r.Limit != "" && r.Limit != event.LimitUser {
			continue
		}
		hint := fmt.Sprintf("write a share of the limit, such as '80%%:%s', or less than %v", r.Action, s.Limit)
		if r.Limit == "" {
			hint += fmt.Sprintf("; where another limit is meant, name it: 'cgroup %s'", r)
		}
		return usagef(hint, "%s: the rule %q is of no use: %v can never be free of %s %s", at.name, r, r.Cond.Free, limit.name, limit)
	}
	return nil
}
