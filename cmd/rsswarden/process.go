package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

const programName = "rsswarden"

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
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
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
