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

// textfile checks that a file of metrics can be kept where it is to be. A user who
// named the directory is told before anything is started; where a site did, the job runs
// without.
func (src *sources) textfile(v chosen, s *supervisor.Settings) error {
	if s.Textfile == "" {
		return nil
	}
	err, answered := within(func() error { return textfile.Check(s.Textfile) })
	if !answered {
		err = errors.New("its file system does not answer")
	}
	if err == nil {
		return nil
	}
	if !v.user() {
		src.warnf("%s %q is not used: no file can be written there: %v", v.name, v, err)
		s.Textfile = ""
		return nil
	}
	hint := "name a directory in which you may write, as node_exporter's --collector.textfile.directory"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "make it, as node_exporter's --collector.textfile.directory says; it must be on this node"
	}
	return usagef(hint, "%s %q: no file can be written there: %v", v.name, v, err)
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
