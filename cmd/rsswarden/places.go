package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor"
)

// This file looks at the places that options name, before the command is started.

// errNoFile says that a name is a directory's.
var errNoFile = errors.New("it is a directory")

// events refuses a file that can never be opened as it is named, where a user named it:
// whoever asks for events wants to find them. What may change, such as a full disk or a
// permission, is told by the run, which goes on.
func (src *sources) events(v chosen, s *supervisor.Settings) error {
	if s.Events == "" {
		return nil
	}
	err, answered := within(func() error { return canStand(s.Events) })
	if !answered || err == nil {
		return nil
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Events = ""
		return nil
	}
	hint := "make the directory first: mkdir -p " + filepath.Dir(s.Events)
	if errors.Is(err, errNoFile) {
		hint = "name a file in it, such as " + filepath.Join(s.Events, "events.jsonl")
	} else if errors.Is(err, syscall.ENOTDIR) {
		hint = "name a file in a directory, such as events.jsonl"
	}
	return usagef(hint, "%s %q cannot be written: %v", v.name, v, err)
}

// canStand says why no file can have that name.
func canStand(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return errNoFile
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return err
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "stat", Path: dir, Err: syscall.ENOTDIR}
	}
	return nil
}

// checkpointFile warns where the directory of the checkpoint is not there: the training
// may be about to make it, so it is no error.
func (src *sources) checkpointFile(v chosen, s *supervisor.Settings) {
	if s.CheckpointFile == "" || !v.user() {
		return
	}
	dir := filepath.Dir(s.CheckpointFile)
	err, answered := within(func() error { _, err := os.Stat(dir); return err })
	if answered && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		src.warnf("%s %q: there is no directory %s now; unless the command makes it, a requeue waits for this file in vain, until --checkpoint-timeout: check the name",
			v.name, v, dir)
	}
}
