package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

func setTextfile(s *supervisor.Settings, v []string) error {
	s.Textfile = ""
	if v[0] == "" {
		return nil
	}
	dir, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.Textfile = dir
	return nil
}

// textfile looks whether a file of metrics can be kept where it is to be: no job stays
// away for that. Where a user named the directory it is told, and tried again later;
// where a site did, the run goes without.
func (src *sources) textfile(v chosen, s *supervisor.Settings) {
	if s.Textfile == "" {
		return
	}
	err, answered := within(func() error { return textfile.Check(s.Textfile) })
	if !answered {
		err = errors.New("its file system does not answer")
	}
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

// leftTextfile is how long a file of metrics may take to be removed.
const leftTextfile = 200 * time.Millisecond

// removeTextfile removes what the watcher has left if it was killed. A directory that
// hangs must not keep the command's exit status back.
func removeTextfile(p process, s *supervisor.Settings) {
	if s.Textfile == "" {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.RemoveTextfile("/proc", os.Getpid(), p.lookup)
	}()
	select {
	case <-done:
	case <-time.After(leftTextfile):
	}
}
