package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Origins of a value, as the start event names them. That of a value from
// --config is the file's absolute path.
const (
	originFlag        = "flag"
	originEnvironment = "environment"
	originSite        = "site"
	originLocked      = "site (locked)"
	originDefault     = "default"
)

// sourcedValue is the value of an option with its origin.
type sourcedValue struct {
	values []string
	origin string
	name   string // where the user wrote it: "--limit", "RSSWARDEN_LIMIT", "job.toml:3:1: limit"
}

func (v sourcedValue) String() string { return strings.Join(v.values, " ") }

// user says whether the user chose this.
func (v sourcedValue) user() bool {
	return v.origin != originSite && v.origin != originLocked && v.origin != originDefault
}

// valueSources are where options come from, strongest first: flags, environment, the
// file of --config, the site's file, defaults. A key that the site locks has the site's
// value, or its default.
type valueSources struct {
	p          process
	c          *cli.Context
	user, site *config.File // nil where there is none
	// warnings go to the watcher: no mistake of the site's, and no conflict with it,
	// keeps a job from running.
	warnings []string
}

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

func (src *valueSources) warnf(format string, args ...any) {
	src.warnings = append(src.warnings, fmt.Sprintf(format, args...))
}

func (src *valueSources) has(name string) bool {
	return slices.ContainsFunc(src.c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// choose finds the strongest source of an option.
func (src *valueSources) choose(o option) sourcedValue {
	v := src.fromUser(o)
	site := o.standard()
	if src.site != nil {
		if value, ok := src.site.Values[o.name]; ok {
			site = sourcedValue{value.Values, originSite, fmt.Sprintf("%s:%d:%d: %s", src.site.Path, value.Line, value.Col, o.name)}
		}
		if src.site.Lock[o.name] {
			site.origin = originLocked
			if v.origin != "" && !slices.Equal(v.values, site.values) {
				at := fmt.Sprintf("at %q", o.shown(site))
				if o.shown(site).String() == "" {
					at = "and sets none"
				}
				src.warnf("%s %q is not used: %s locks %s %s", v.name, o.shown(v), src.site.Path, o.name, at)
			}
			return site
		}
	}
	if v.origin == "" {
		return site
	}
	return v
}

// fromUser is what the user chose, zero for nothing.
func (src *valueSources) fromUser(o option) sourcedValue {
	if src.has(o.name) {
		if src.c.IsSet(o.name) {
			if o.kind == config.Text && o.def == "" && src.c.String(o.name) == "" {
				src.warnf("--%s is empty: it does nothing; is a variable not set?", o.name)
			}
			return sourcedValue{flagValues(src.c, o), originFlag, "--" + o.name}
		}
		variable := variableOf(o.name)
		if text := src.p.get(variable); text != "" {
			values := []string{text}
			if o.kind == config.List {
				values = lines(text)
			}
			return sourcedValue{values, originEnvironment, variable}
		}
	}
	if src.user != nil {
		if value, ok := src.user.Values[o.name]; ok {
			return sourcedValue{value.Values, absolute(src.user.Path), fmt.Sprintf("%s:%d:%d: %s", src.user.Path, value.Line, value.Col, o.name)}
		}
	}
	return sourcedValue{}
}

// standard is an option at its default.
func (o option) standard() sourcedValue {
	v := sourcedValue{[]string{o.def}, originDefault, "--" + o.name}
	switch o.kind {
	case config.List:
		v.values = nil
	case config.Truth:
		v.values = []string{"false"}
	}
	return v
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
		written := missing
		switch v.origin {
		case originFlag:
			written = "--" + missing
		case originEnvironment:
			written = variableOf(missing)
		}
		return usagef("rsswarden run --worker-signal TERM --worker-match 'my_pool worker' -- COMMAND",
			"%s needs %s", v.name, written)
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
		if name := strings.ToLower(strings.ReplaceAll(rest, "_", "-")); removedOptions[name] != "" {
			src.warnf("%s means nothing here: the option %s was removed; %s", variable, dashed(name), removedOptions[name])
		} else if near := text.Similar(rest, known); near != "" {
			src.warnf("%s means nothing here; did you mean %s?", variable, variableOf(near))
		}
	}
}

// usage is err for the user.
func (v sourcedValue) usage(err error) error {
	var wrong *valueError
	if errors.As(err, &wrong) {
		return usagef(wrong.hint, "%s%s", v.name, wrong.says)
	}
	return err
}

const variablePrefix = "RSSWARDEN_"

// variableOf names the environment variable of an option.
func variableOf(name string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// lines are the lines of a text that are not blank.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(v string) bool { return strings.TrimSpace(v) == "" })
}

func flagValues(c *cli.Context, o option) []string {
	switch o.kind {
	case config.Truth:
		return []string{strconv.FormatBool(c.Bool(o.name))}
	case config.List:
		return c.StringSlice(o.name)
	}
	return []string{c.String(o.name)}
}

// configPatience is how long the start of a command may wait for each file, which may be
// on a file server that hangs.
const configPatience = 2 * time.Second

// read reads both files. A mistake in the user's is an error; one in the site's is a
// warning, and the rest of it is used.
func (src *valueSources) read(s *settings.Settings) error {
	if src.has(configOption.name) {
		path, origin := src.c.String(configOption.name), originFlag
		if !src.c.IsSet(configOption.name) {
			if path, origin = src.p.get(variableOf(configOption.name)), originEnvironment; path == "" {
				origin = originDefault
			}
		}
		if path != "" {
			if err := src.readUser(path); err != nil {
				return err
			}
			path = absolute(path)
		}
		s.Origins = append(s.Origins, event.Setting{Name: configOption.name, Value: path, Origin: origin})
	}
	if src.p.site != "" {
		src.readSite(src.p.site)
	}
	return nil
}

func (src *valueSources) readUser(path string) error {
	q := ioRequest{What: ioConfig, Path: []byte(absolute(path))}
	text, err := q.text(configPatience, ofDescriptor(path))
	if err != nil {
		hint := "name a file of yours in TOML, or leave --config out"
		if errors.Is(err, fs.ErrNotExist) {
			hint = "check the name; a relative one is looked for in the working directory"
		}
		return usagef(hint, "cannot read configuration %s: %v", path, err)
	}
	file, problems := config.Parse(path, text, keys(), false)
	problems = append(problems, unusable(file)...)
	if len(problems) > 0 {
		return usagef(problems[0].Hint, "%s", problems[0])
	}
	src.user = file
	return nil
}

func (src *valueSources) readSite(path string) {
	q := ioRequest{What: ioSite, Path: []byte(absolute(path))}
	text, err := q.text(configPatience, isLocal(absolute(path)))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return
	case err != nil:
		src.warnf("%s is not used: %v", path, err)
		return
	}
	file, problems := config.Parse(path, text, keys(), true)
	problems = append(problems, unusable(file)...)
	for _, problem := range problems {
		src.warnf("%v; %s", problem, problem.Hint)
	}
	src.site = file
}

// unusable removes values that no option takes, and returns what is wrong with them.
func unusable(file *config.File) (problems []*config.Problem) {
	for _, o := range options {
		value, ok := file.Values[o.name]
		if !ok {
			continue
		}
		var scratch settings.Settings
		var wrong *valueError
		if errors.As(o.apply(&scratch, value.Values), &wrong) {
			problems = append(problems, file.Problem(o.name, o.name+wrong.says, wrong.hint))
			delete(file.Values, o.name)
		}
	}
	slices.SortStableFunc(problems, func(a, b *config.Problem) int { return a.Line - b.Line })
	return problems
}

// keys are the options that a file may have, and those that were removed.
func keys() []config.Key {
	var all []config.Key
	for _, o := range options {
		all = append(all, config.Key{Name: o.name, Kind: o.kind})
	}
	for name, instead := range removedOptions {
		all = append(all, config.Key{Name: name, Removed: instead})
	}
	return all
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
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

// shown is v for people: without the secrets of --alert.
func (o option) shown(v sourcedValue) sourcedValue {
	if o.name != alertOption {
		return v
	}
	v.values = slices.Clone(v.values)
	for i, text := range v.values {
		v.values[i] = alert.Redact(text)
	}
	return v
}
