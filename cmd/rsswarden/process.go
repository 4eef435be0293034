package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const programName = "rsswarden"

// version is set by the linker; `make build` puts the git description here.
var version = "unknown"

// siteFile holds the options of a site. Tests link another name in; users cannot.
var siteFile = "/etc/rsswarden.toml"

// process is what a command may know of the process it runs in. Nothing below main
// reads os.Args or the environment itself.
type process struct {
	args    []string
	lookup  func(string) (string, bool)
	env     []string
	stdout  *os.File
	stderr  *os.File
	site    string // the site's configuration file
	version string
	color   *string // the value of --color of a command that prints, nil for none
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
}

// within asks what may hang, such as a file system; false if there is no answer in time.
func within[T any](patience time.Duration, ask func() T) (answer T, ok bool) {
	c := make(chan T, 1)
	go func() { c <- ask() }()
	select {
	case answer = <-c:
		return answer, true
	case <-time.After(patience):
		return answer, false
	}
}

// candidates are the files that execvp(3) tries for name, in that order.
func (p process) candidates(name string) []string {
	if name == "" || strings.Contains(name, "/") {
		return []string{name}
	}
	path, ok := p.lookup("PATH")
	if !ok {
		path = "/bin:/usr/bin" // confstr(_CS_PATH)
	}
	var files []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir != "" { // else the working directory
			dir += "/"
		}
		files = append(files, dir+name)
	}
	return files
}

// lookPath finds the file that execvp(3) would execute for name, else the first that it
// may not execute.
func (p process) lookPath(name string) (string, error) {
	if name == "" {
		return name, syscall.ENOENT
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	refused, found := name, error(syscall.ENOENT)
	for _, file := range p.candidates(name) {
		if !strings.Contains(file, "/") {
			file = "./" + file
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		// What is in a directory that may not be entered is not known, and shells
		// pass over it.
		if _, lerr := os.Lstat(file); lerr == nil && errors.Is(err, fs.ErrPermission) && found == syscall.ENOENT {
			refused, found = file, err
		}
	}
	return refused, found
}

func executable(file string) error {
	const xOK = 1
	info, err := os.Stat(file)
	if err != nil {
		if syscall.Access(file, xOK) == nil {
			return nil // stat(2) is refused; execvp(3) makes none
		}
		return err
	}
	if info.IsDir() {
		return syscall.EACCES
	}
	if err := syscall.Access(file, xOK); err == syscall.EACCES {
		return err
	}
	return nil // any other answer, of a seccomp filter say, is about access(2): execve decides
}

// Exit statuses of our own. All others are the command's.
const (
	exitOK        = 0
	exitFailed    = 1   // not all was done, or could be told; see statuses
	exitUsage     = 2   // bad usage, nothing was started
	exitCannotRun = 125 // we could not start the command
	exitNotExec   = 126 // the command was found and cannot be executed
	exitNotFound  = 127 // the command was not found
	exitStopped   = 137 // our `stop` ended it, unless --stop-status says otherwise
)

// statuses tells of them.
var statuses = [][2]string{
	{strconv.Itoa(exitOK), "It was done. (Of run: the command ended so.)"},
	{strconv.Itoa(exitFailed), "trim: every process was refused; status, top --once, recycle, checkpoint: not all answered or did it;\n" +
		"doctor: run would protect only in part; report, replay: a record could not be read;\nall: a file or standard output could not be written."},
	{strconv.Itoa(exitUsage), "Bad usage; nothing was started. report, replay: no record is there."},
	{strconv.Itoa(exitCannotRun), "run: the command could not be started."},
	{strconv.Itoa(exitNotExec), "run: the command was found and is not executable."},
	{strconv.Itoa(exitNotFound), "run: the command was not found."},
	{strconv.Itoa(exitStopped), "run: a stop rule ended it; --stop-status chooses another."},
}

// failure is an error that ends a command, with what to do about it.
type failure struct {
	error
	hint   string
	status int
	format string // of the log that it is printed in, empty for text
}

func (e *failure) Unwrap() error { return e.error }

// usagef is bad input, found before anything was started.
func usagef(hint, format string, args ...any) error {
	return &failure{error: fmt.Errorf(format, args...), hint: hint, status: exitUsage}
}

// recordFailure is a record that cannot be read, or a report that cannot be written.
func recordFailure(err error, hint string) error {
	return &failure{error: err, hint: hint, status: exitFailed}
}

// exitStatus is the error of a command that has said what there is to say.
type exitStatus int

func (s exitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }

// errnoOf strips the path that the standard library wraps around an errno.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
