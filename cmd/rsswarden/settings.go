package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// settingsOf are the checked settings of a command with [watchFlags]; options that it does
// not have are at their defaults. The caller fills in what to watch.
func settingsOf(p process, c *cli.Context) (settings.Settings, error) {
	s := settings.Settings{Run: settings.Run{Version: p.version}}
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
	s.LimitSource = picked["limit"].place()
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
	known = append(known, configOption.name, "dir", "runtime", "event", "park", alertToken)
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

// events refuses a file that can never be opened, if a user named it. What may change,
// such as a full disk or a permission, the run reports and goes on.
func (src *valueSources) events(v sourcedValue, s *settings.Settings) error {
	if s.Events == "" || ofDescriptor(s.Events) {
		return nil
	}
	err := src.ask(v, ioName, absolute(s.Events))
	if err == nil {
		return nil
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Events = ""
		return nil
	}
	hint := "make the directory first: mkdir -p " + filepath.Dir(s.Events)
	if errors.Is(err, syscall.EISDIR) {
		hint = "name a file in it, such as " + filepath.Join(s.Events, "events.jsonl")
	} else if errors.Is(err, syscall.ENOTDIR) {
		hint = "name a file in a directory, such as events.jsonl"
	}
	return usagef(hint, "%s %q cannot be written: %v", v.name, v, err)
}

// ask asks about a path of an option, and warns if there is no answer.
func (src *valueSources) ask(v sourcedValue, what ioKind, path string) error {
	q := ioRequest{What: what, Path: []byte(path)}
	r, err := q.answer(isLocal(path))
	if err != nil {
		src.warnf("%s %q: %v", v.name, v, err)
		return nil
	}
	return r.err()
}

// checkpointFile warns if the directory of the checkpoint is missing; the training may
// be about to make it.
func (src *valueSources) checkpointFile(v sourcedValue, s *settings.Settings) {
	if s.CheckpointFile == "" || !v.user() {
		return
	}
	dir := filepath.Dir(s.CheckpointFile)
	if err := src.ask(v, ioThere, dir); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		src.warnf("%s %q: there is no directory %s now; unless the command makes it, a requeue waits for this file until --checkpoint-timeout: check the name",
			v.name, v, dir)
	}
}

// textfile warns if no file of metrics can be kept there. A user's directory is tried
// again later; a site's is dropped.
func (src *valueSources) textfile(v sourcedValue, s *settings.Settings) {
	if s.Textfile == "" {
		return
	}
	err := askAside(ioTextfile, s.Textfile)
	if err == nil {
		return
	}
	if !v.user() {
		src.warnf("%s %q is not used: no file can be written there: %v", v.name, v, err)
		s.Textfile = ""
		return
	}
	hint := "name a directory in which you may write, as node_exporter's --collector.textfile.directory"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "make it, as node_exporter's --collector.textfile.directory says; it must be on this node"
	}
	s.TextfileFault = err.Error()
	src.warnf("%s %q: no file can be written there: %v; it is tried again; %s", v.name, v, err, hint)
}

// alerts checks the values of --alert together, and finds the program that carries
// alerts. A site's mistake leaves the job without alerts.
func (src *valueSources) alerts(v sourcedValue, s *settings.Settings) error {
	s.AlertToken = src.p.get(variableOf(alertToken))
	if !src.has(alertOption) || len(s.Alerts) == 0 {
		s.Alerts = nil
		return nil
	}
	if i := slices.IndexFunc(s.Alerts, alert.Target.Secret); v.origin == originFlag && i >= 0 {
		return usagef("put it into the variable RSSWARDEN_ALERT or a file of --config; a token into RSSWARDEN_ALERT_TOKEN or RSSWARDEN_ALERT_TOKEN_FILE",
			"the URL of --alert for %v has a user, a query or a token, and everybody on this node can read a command line", s.Alerts[i])
	}
	path, err := src.sender()
	if err == nil {
		s.AlertProgram = path
		src.alertSecrets(v, s)
		return nil
	}
	const why = "the program " + alertProgram + ", which carries alerts, is neither beside " + programName + " nor in PATH"
	if !v.user() {
		src.warnf("%s is not used: %s", v.name, why)
		s.Alerts = nil
		return nil
	}
	return usagef("make install puts both into one directory; or leave --alert out", "%s: %s", v.name, why)
}

// sender finds the program beside our own, and then in PATH.
func (src *valueSources) sender() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), alertProgram)
		if executable(path) == nil {
			return path, nil
		}
	}
	path, err := src.p.lookPath(alertProgram)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// alertSecrets warns of secrets that others can read, that go nowhere, or that cannot be
// read.
func (src *valueSources) alertSecrets(v sourcedValue, s *settings.Settings) {
	if v.origin == originFlag && slices.ContainsFunc(s.Alerts, alert.Target.Pathed) {
		src.warnf("--alert: everybody on this node can read a command line, and the path of a webhook is often its key; put the URL into RSSWARDEN_ALERT, one a line, or a file of --config")
	}
	given, taken := s.AlertToken != "" || s.AlertTokenFile != "", false
	for _, t := range s.Alerts {
		taken = taken || t.TakesToken()
		if t.Plain() && (t.Knows() || given && t.TakesToken()) {
			src.warnf("--alert: what %v is to know us by goes there in plain, and can be read on the way; use https://", t)
		}
		if t.TokenFile != "" {
			src.tokenFile(t.TokenFile)
		}
	}
	switch {
	case given && !taken:
		src.warnf("the token for alerts goes to no receiver: it is for Alertmanagers without a user of their own; write token-file=FILE behind the URL of another, in RSSWARDEN_ALERT or a file of --config")
	case s.AlertTokenFile != "":
		src.tokenFile(s.AlertTokenFile)
	}
}

// tokenFile warns where no token can be read yet.
func (src *valueSources) tokenFile(path string) {
	if err := askAside(ioToken, absolute(path)); err != nil {
		src.warnf("--alert: %v; no alert is sent before it can be read; write it into the first line of a file that you alone may read", err)
	}
}

// record makes the directory of the record. A failure does not keep the job from
// running.
func (src *valueSources) record(v sourcedValue, s *settings.Settings) {
	if s.Record == settings.RecordAuto || s.Record == settings.RecordNone {
		return
	}
	err := askAside(ioRecord, s.Record)
	if err == nil {
		return
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Record = settings.RecordAuto
		return
	}
	kept := "; the journal is kept"
	// That of an attach lies where its target's environment says.
	if journals := record.DefaultPlaces(src.p.lookup, os.Geteuid()).Journals; len(journals) > 0 && src.c.Command.Name == "run" {
		kept += ", in " + journals[0]
	}
	var unanswered *hold.UnansweredError
	if errors.As(err, &unanswered) { // as one that is mounted at its first use
		src.warnf("%s %q: %v; the full record begins once it answers%s", v.name, v, err, kept)
		return
	}
	s.RecordFault = err.Error()
	src.warnf("%s %q: there is no full record of this run: %v%s; give a directory on a disk of this node, as --record $TMPDIR, or leave it out", v.name, v, err, kept)
}
