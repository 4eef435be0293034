package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor"
)

// This file looks at the places that options name, before the command is started.

// events refuses a file that can never be opened as it is named, where a user named it:
// whoever asks for events wants to find them. What may change, such as a full disk or a
// permission, is told by the run, which goes on.
func (src *sources) events(v chosen, s *supervisor.Settings) error {
	if s.Events == "" || ofDescriptor(s.Events) {
		return nil
	}
	q := looking{What: asideName, Path: []byte(absolute(s.Events))}
	r, err := q.answer(preparePatience, unserved(absolute(s.Events)))
	if err != nil {
		src.warnf("%s %q: %v", v.name, v, err)
		return nil
	}
	if err = r.err(); err == nil {
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

// ofDescriptor says that a path names a descriptor of ours, which no other process has.
func ofDescriptor(path string) bool {
	return path == "/dev/stdin" || path == "/dev/stdout" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// canStand says why no file can have that name.
func canStand(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
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
	q := looking{What: asideThere, Path: []byte(dir)}
	r, err := q.answer(preparePatience, unserved(dir))
	if err != nil {
		src.warnf("%s %q: %v", v.name, v, err)
		return
	}
	if err = r.err(); err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		src.warnf("%s %q: there is no directory %s now; unless the command makes it, a requeue waits for this file in vain, until --checkpoint-timeout: check the name",
			v.name, v, dir)
	}
}
