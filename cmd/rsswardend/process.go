package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// process is what the program may know of the process it runs in; nothing below main
// reads os.Args or the environment itself.
type process struct {
	args           []string
	lookup         func(string) (string, bool)
	stdout, stderr *os.File
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // it could not start, or go on
	exitUsage  = 2 // bad usage, nothing was started
)

const programName = "rsswardend"

// version is set by the linker; `make build` puts the git description here.
var version = "unknown"

// settings is what the command line chooses.
type settings struct {
	listen, webConfig string // listen is empty for no HTTP
	textfile, records string // directories, empty for none
	interval          time.Duration
	node              string
}

// failure is what kept it from starting, with what to do about it.
type failure struct {
	error
	hint   string
	status int
}

func (f *failure) Unwrap() error { return f.error }

// usagef is bad input, found before anything was started.
func usagef(hint, format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), hint, exitUsage}
}
