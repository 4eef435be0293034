package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// settingsOf are the checked settings of a command with [watchFlags]; options that it does
// not have are at their defaults. The caller fills in what to watch.
func settingsOf(p process, c *cli.Context) (settings.Settings, error) {
	s := settings.Settings{Version: p.version}
	src := &valueSources{p: p, c: c}
	if err := src.read(&s); err != nil {
		return s, err
	}
	picked := map[string]sourcedValue{}
	for _, o := range options {
		v := src.choose(o)
		if err := o.apply(&s, v.values); err != nil {
			return s, v.usage(err)
		}
		picked[o.name] = v
	}
	if err := src.pairWorkerOptions(picked, &s); err != nil {
		return s, err
	}
	if err := src.events(picked["events"], &s); err != nil {
		return s, err
	}
	if err := rejectImpossibleFree(picked["at"], picked["limit"], &s); err != nil {
		return s, err
	}
	src.record(picked["record"], &s)
	src.checkpointFile(picked["checkpoint-file"], &s)
	src.textfile(picked["textfile"], &s)
	for _, o := range options {
		if v := picked[o.name]; src.has(o.name) {
			s.Origins = append(s.Origins, event.Setting{Name: o.name, Value: o.shown(v).String(), Origin: v.origin})
		}
	}
	if err := src.alerts(picked[alertOption], &s); err != nil {
		return s, err
	}
	src.warnLimitTooLarge(picked["limit"], &s)
	src.warnNofileTooLarge(picked["nofile"], &s)
	src.warnUnknownVariables()
	s.Warnings = append(s.Warnings, src.warnings...)
	return s, nil
}

// pairWorkerOptions needs worker-signal and worker-match together. A site's mistake
// leaves the job without both.
func (src *valueSources) pairWorkerOptions(picked map[string]sourcedValue, s *settings.Settings) error {
	const sig, match = "worker-signal", "worker-match"
	lonely, missing := sig, match
	switch {
	case (s.WorkerSignal == 0) == (s.WorkerMatch == ""):
		return nil
	case s.WorkerSignal == 0:
		lonely, missing = match, sig
	}
	v := picked[lonely]
	if v.user() && picked[missing].origin != originLocked {
		written := map[string]string{originFlag: "--" + missing, originEnvironment: variableOf(missing)}[v.origin]
		return usagef("rsswarden run --worker-signal TERM --worker-match 'my_pool worker' -- COMMAND",
			"%s needs %s", v.name, cmp.Or(written, missing))
	}
	src.warnf("%s is not used: it needs %s", v.name, missing)
	s.WorkerSignal, s.WorkerMatch = 0, ""
	picked[lonely] = sourcedValue{[]string{""}, originDefault, ""}
	return nil
}

// smallLimit is what a Python with PyTorch takes long before it trains.
const smallLimit = 64 * rss.MiB

// warnLimitTooLarge warns of a --limit above the node's memory, and of a bare number too
// small for any training: it was meant in bytes, GiB or as a share, but is MiB as in
// Slurm.
func (src *valueSources) warnLimitTooLarge(v sourcedValue, s *settings.Settings) {
	if _, err := strconv.ParseFloat(v.String(), 64); err == nil && s.Limit > 0 && s.Limit < smallLimit {
		src.warnf("%s %s is %v: a number without a suffix is MiB, as in sbatch --mem; GiB are written 80G", v.name, v, s.Limit)
		return
	}
	node, err := proctree.ReadMemInfo("/proc")
	if err != nil || s.Limit <= node.Total {
		return
	}
	more := ""
	if _, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
		more = "; a number without a suffix is MiB, as in sbatch --mem"
	}
	src.warnf("%s %s is %v, more than the %v of this node: it can never act%s", v.name, v, s.Limit, node.Total, more)
}

// warnNofileTooLarge warns of a --nofile above the hard limit.
func (src *valueSources) warnNofileTooLarge(v sourcedValue, s *settings.Settings) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || !v.user() || s.NoFile <= 0 || uint64(s.NoFile) <= l.Max {
		return
	}
	src.warnf("%s %d is more than the hard limit, %s (ulimit -Hn): that is the most that a process can have here; only an administrator can raise it",
		v.name, s.NoFile, text.Digits(l.Max))
}

// warnUnknownVariables warns of variables that look like ours. It is no error: others
// may use our prefix.
func (src *valueSources) warnUnknownVariables() {
	if v := src.p.get("RSSWARDEN"); v != "" && v != "on" && v != "off" {
		src.warnf("RSSWARDEN=%q means nothing here; RSSWARDEN=off runs the command without rsswarden", v)
	}
	var known []string
	for _, o := range options {
		known = append(known, o.name)
	}
	// Ours, and no options; the last is what a command of an exec= rule has.
	known = append(known, configOption.name, "dir", "runtime", "event", alertToken)
	for _, entry := range src.p.env {
		variable, _, _ := strings.Cut(entry, "=")
		rest, ok := strings.CutPrefix(variable, variablePrefix)
		if !ok || slices.ContainsFunc(known, func(name string) bool { return variableOf(name) == variable }) {
			continue
		}
		if near := text.Similar(rest, known); near != "" {
			src.warnf("%s means nothing here; did you mean %s?", variable, variableOf(near))
		}
	}
}

// deadRules are warnings about rules of a user's that can never fire in this run. A
// site's rules are for all jobs.
func deadRules(s *settings.Settings, inSlurm bool) (said []string) {
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

// rejectImpossibleFree refuses a rule of a user's that wants more free than --limit is.
func rejectImpossibleFree(at, limit sourcedValue, s *settings.Settings) error {
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
