package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// This file writes what the journal takes in.

func (j *journaler) begin() { go j.write() }

func (j *journaler) tell() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journaler) close(end <-chan time.Time) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.tell()
	select {
	case <-j.done:
	case <-end:
	}
}

func (j *journaler) write() {
	defer close(j.done)
	f, path, err := openJournal(j.opt.Places.Journals, j.opt.Meta.ID)
	if err != nil {
		j.stop(err)
		return
	}
	defer f.Close()
	err = j.first(f, path)
	for err == nil {
		j.mu.Lock()
		lines, sync, closed := j.lines, j.sync, j.closed
		j.lines, j.sync = nil, false
		j.mu.Unlock()
		var b []byte
		for _, l := range lines {
			b = append(b, l...)
		}
		if len(b) > 0 {
			fault.Point("journal")
			_, err = f.Write(b)
		}
		if err == nil && sync {
			err = f.Sync()
		}
		if err != nil || closed {
			break
		}
		<-j.wake
	}
	if err != nil {
		j.stop(fmt.Errorf("cannot write journal %s, it ends here: %w", path, err))
	}
}

// first writes the first line. Where an earlier watcher has begun the journal,
// which a kill may have cut off within a line, it goes on after that.
func (j *journaler) first(f *os.File, path string) error {
	meta := j.opt.Meta
	meta.V, meta.Journal = Version, path
	line, err := makeRunLine(meta)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		line = nil
	}
	line = append(line, '\n')
	j.mu.Lock()
	j.size += int(info.Size()) + len(line)
	j.mu.Unlock()
	_, err = f.Write(line)
	return err
}

func (j *journaler) stop(err error) {
	j.mu.Lock()
	j.off, j.lines = true, nil
	j.mu.Unlock()
	j.opt.Fault("journal", err)
}

// openJournal makes the journal in the first place that takes it.
func openJournal(places []string, id string) (*os.File, string, error) {
	var errs []error
	for _, place := range places {
		path := filepath.Join(place, id+journalSuffix)
		mode := fs.FileMode(0o700)
		if filepath.Base(place) == journalDir {
			mode = 0o755 // beside the job's own files, for those who may read them
		}
		err := makeAll(place, homeLevels, mode)
		if err == nil {
			var f *os.File
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
			if err == nil {
				return f, path, nil
			}
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errNoPlace)
	}
	return nil, "", fmt.Errorf("cannot make journal: %w", errors.Join(errs...))
}
