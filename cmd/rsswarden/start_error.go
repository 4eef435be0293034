package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// startError says why the command could not be started, with the exit status of a shell.
type startError struct {
	err    error
	hint   string
	status int
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// notStarted says that the command name could not be started because of err.
func notStarted(name string, err error) error {
	said := name
	if name == "" {
		said = `""`
	}
	e := &startError{err: &fs.PathError{Op: "cannot start", Path: said, Err: errnoOf(err)}, status: exitNotExec}
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(name, "/") && executable(name) == nil:
		// The file is there: it is execve(2) that missed something.
		e.status = exitNotFound
		e.hint = "the file is there, what runs it is not: look at its first line, or at what this says: file " + name
		if line, err := firstLine(name); err == nil && strings.HasPrefix(line, "#!") && strings.HasSuffix(line, "\r") {
			e.hint = "its lines end as those of Windows do, so what its first line names is not there: sed -i 's/\\r$//' " + name
		}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.status = exitNotFound
		e.hint = missingCommandHint(name)
	case errors.Is(err, fs.ErrPermission):
		e.hint = "make it executable: chmod +x " + name
		if info, serr := os.Stat(name); serr == nil && info.IsDir() {
			e.hint = "name a program, " + name + " is a directory"
		} else if line, lerr := firstLine(name); serr == nil && filepath.Ext(name) == ".py" && lerr == nil && !strings.HasPrefix(line, "#!") {
			// Made executable, a shell would read it.
			e.hint = "Python runs it: " + programName + " run -- python3 " + name
		}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		e.status = exitCannotRun
		e.hint = "the system refuses new processes: look at ulimit -u and the job's memory"
	default:
		e.hint = "run it without rsswarden to see whether it starts"
	}
	return e
}

// firstLine is what the kernel takes for the first line of a file, without its end.
func firstLine(name string) (string, error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("not a file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 256) // BINPRM_BUF_SIZE of include/uapi/linux/binfmts.h
	n, err := io.ReadFull(f, head)
	if n == 0 {
		return "", err
	}
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	return line, nil
}

// plain strips the path that the standard library wraps around an errno.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
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
