package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// ioCommand asks a file system that may hang, in a process of its own: the holder must
// be able to end when its command has (see hold.RunIOHelper). Not for users.
const ioCommand = "aside"

// ioRequest is what it is asked. Paths need not be UTF-8, as JSON strings are.
type ioRequest struct {
	What   ioKind
	Path   []byte `json:",omitempty"`
	Env    []byte `json:",omitempty"` // what loader.Prepare looks at, NUL between
	Run    string `json:",omitempty"` // its name
	Holder int    `json:",omitempty"` // PID of who asks
}

type ioKind string

const (
	ioConfig   ioKind = "config"
	ioSite     ioKind = "site" // the site's configuration
	ioRecord   ioKind = "record"
	ioTextfile ioKind = "textfile"
	ioToken    ioKind = "token"
	ioPrepare  ioKind = "prepare"
	ioRemove   ioKind = "remove-textfile"
	ioName     ioKind = "name" // whether a file can have it
	ioThere    ioKind = "there"
)

// ioReply is the result.
type ioReply struct {
	Text      []byte        `json:",omitempty"` // of a file
	Dir, Hook []byte        `json:",omitempty"` // as loader.Prepared has them
	Passed    string        `json:",omitempty"` // … and that, as text
	Distrust  bool          `json:",omitempty"` // … Distrusted
	Error     string        `json:",omitempty"`
	Errno     syscall.Errno `json:",omitempty"` // that Error is of, 0 where it is of none
}

// err is the error as it was there, to errors.Is.
func (r *ioReply) err() error {
	if r.Error == "" {
		return nil
	}
	return &repliedError{r.Error, r.Errno}
}

type repliedError struct {
	says  string
	errno syscall.Errno
}

func (e *repliedError) Error() string { return e.says }

func (e *repliedError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// look does what was asked. It may hang.
func (q *ioRequest) look() (r ioReply) {
	defer func() {
		if what := recover(); what != nil {
			r = ioReply{Error: fmt.Sprintf("internal error: %v", what)}
		}
	}()
	var err error
	path := string(q.Path)
	switch q.What {
	case ioConfig:
		r.Text, err = config.Read(path)
	case ioSite:
		r.Text, err = config.ReadTrusted(path)
	case ioRecord:
		err = record.MakeDir(path)
	case ioName:
		err = checkFileName(path)
	case ioThere:
		_, err = os.Stat(path)
	case ioTextfile:
		err = textfile.Check(path)
	case ioToken:
		_, err = alert.ReadToken(path) // the token itself is for the watcher alone
	case ioPrepare:
		fault.Point("prepare")
		var p loader.Prepared
		if p, err = loader.Prepare(loader.Options{Env: strings.Split(string(q.Env), "\x00"), Name: q.Run, Owner: q.Holder, Dir: path}); err == nil {
			if p.Passed != nil {
				r.Passed, r.Distrust = p.Passed.Error(), p.Distrusted
			}
			r.Dir, r.Hook = []byte(p.Dir), []byte(p.Hook)
		}
	case ioRemove:
		tell.RemoveTextfile(path, "/proc", q.Holder, os.LookupEnv)
	}
	if err != nil {
		r.Error = err.Error()
		errors.As(err, &r.Errno)
	}
	return r
}

// serveIO is the helper process.
func serveIO(p process) int {
	ask, err := hold.Asked()
	var q ioRequest
	if err == nil {
		err = json.Unmarshal(ask, &q)
	}
	if err != nil {
		return fail(p, usagef(programName+" run -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", ioCommand, err))
	}
	text, err := json.Marshal(q.look())
	if err == nil {
		err = hold.Answer(text)
	}
	if err != nil {
		return exitCannotRun
	}
	return exitOK
}

// filePatience is how long the start of a command may wait for a file, or for the hook and the
// run directory, from when the file system is asked, which may be that of a server that hangs;
// startPatience is until then: where many start at once it takes long to get a processor.
// leftTextfile is both at the end of a command.
const (
	filePatience  = 2 * time.Second
	startPatience = 10 * time.Second
	leftTextfile  = 200 * time.Millisecond
)

// answer waits for the result. here says that the file system is local, which spares the process.
func (q *ioRequest) answer(here bool) (ioReply, error) {
	start, patience := startPatience, filePatience
	if q.What == ioRemove {
		start, patience = leftTextfile, leftTextfile
	}
	if here {
		patience += start
	} else {
		ask, err := json.Marshal(q)
		if err != nil {
			return ioReply{}, err
		}
		text, err := hold.RunIOHelper([]string{"/proc/self/exe", ioCommand}, ask, start, patience)
		var r ioReply
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		var none syscall.Errno
		if !errors.As(err, &none) {
			return r, err
		}
		// There is no room for a process.
	}
	if r, ok := within(patience, q.look); ok {
		return r, nil
	}
	return ioReply{}, &hold.UnansweredError{Asked: true, Patience: patience}
}

// readAside reads a file of options.
func readAside(what ioKind, path string) ([]byte, error) {
	q := ioRequest{What: what, Path: []byte(path)}
	here := ofDescriptor(path)
	if !here && isLocal(path) {
		info, err := os.Stat(path)
		here = err != nil || info.Mode().IsRegular() // a pipe may have no writer
	}
	r, err := q.answer(here)
	if err != nil {
		return nil, err
	}
	return r.Text, r.err()
}

// askAside asks about a path in a process of its own: writing may hang on any disk.
func askAside(what ioKind, path string) error {
	q := ioRequest{What: what, Path: []byte(path)}
	r, err := q.answer(false)
	return cmp.Or(err, r.err())
}

// isLocal says that no path to these places needs a file server, which may hang.
func isLocal(paths ...string) bool {
	mounts, err := procfile.Read("/proc/self/mountinfo", procfile.Table)
	if err != nil {
		return false
	}
	for _, path := range paths {
		if !nodedir.Unserved(mounts, path) {
			return false
		}
	}
	return true
}

// checkFileName says why no file can have that name.
func checkFileName(path string) error {
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

// ofDescriptor says that a path names a descriptor of this process.
func ofDescriptor(path string) bool {
	return path == "/dev/stdin" || path == "/dev/stdout" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}
