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

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
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

// place is where it was written, for people; empty for a default.
func (v sourcedValue) place() string {
	switch v.origin {
	case originDefault:
		return ""
	case originFlag, originEnvironment:
		return v.name
	case originSite, originLocked:
		return "the site's configuration"
	}
	return v.origin
}

// usage is err for the user.
func (v sourcedValue) usage(err error) error { return usageOf(v.name, err) }

// usageOf is err for the user, who wrote name.
func usageOf(name string, err error) error {
	var wrong *valueError
	if errors.As(err, &wrong) {
		return usagef(wrong.hint, "%s%s", name, wrong.says)
	}
	return err
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

func (src *valueSources) warnf(format string, args ...any) {
	src.warnings = append(src.warnings, fmt.Sprintf(format, args...))
}

func (src *valueSources) has(name string) bool {
	return flagNamed(src.c.Command.Flags, name) != nil
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
				values = nonBlankLines(text)
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

const variablePrefix = "RSSWARDEN_"

// variableOf names the environment variable of an option.
func variableOf(name string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// nonBlankLines are the lines of a text that are not blank.
func nonBlankLines(text string) []string {
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
	text, err := readAside(ioConfig, absolute(path))
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
	text, err := readAside(ioSite, absolute(path))
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

// keys are the options that a file may have.
func keys() []config.Key {
	var all []config.Key
	for _, o := range options {
		all = append(all, config.Key{Name: o.name, Kind: o.kind})
	}
	return all
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
