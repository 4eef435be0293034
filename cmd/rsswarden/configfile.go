package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// configPatience is how long the start of a command may wait for each of the
// two files: they may lie on a server that does not answer.
const configPatience = 2 * time.Second

// read reads both files. What is wrong with the user's own is an error: nothing
// has been started, and it is theirs to mend. What is wrong with the site's is
// a warning, and what can be used of it is used.
func (src *sources) read(s *supervisor.Settings) error {
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

func (src *sources) readUser(path string) error {
	q := looking{What: asideConfig, Path: []byte(absolute(path))}
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

func (src *sources) readSite(path string) {
	q := looking{What: asideSite, Path: []byte(absolute(path))}
	text, err := q.text(configPatience, unserved(absolute(path)))
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

// unusable takes out of a file what no option takes for a value.
func unusable(file *config.File) (problems []*config.Problem) {
	for _, o := range slices.Concat(watchOptions, runOptions) {
		value, ok := file.Values[o.name]
		if !ok {
			continue
		}
		var scratch supervisor.Settings
		var wrong *wrongValue
		if errors.As(o.apply(&scratch, value.Values), &wrong) {
			problems = append(problems, file.Problem(o.name, o.name+wrong.says, wrong.hint))
			delete(file.Values, o.name)
		}
	}
	slices.SortStableFunc(problems, func(a, b *config.Problem) int { return a.Line - b.Line })
	return problems
}

// keys are the options as a file may have them, and those that were removed.
// Which file is read cannot be told by a file.
func keys() []config.Key {
	var all []config.Key
	for _, o := range slices.Concat(watchOptions, runOptions) {
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
