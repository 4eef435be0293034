package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ofShells are commands that only a shell has, and no file.
var ofShells = []string{".", "alias", "cd", "conda", "eval", "exec", "export", "module", "set", "source", "ulimit", "umask", "unset"}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// likelyMeant is what to type instead of a command that is not there.
func likelyMeant(name string) string {
	run := programName + " run -- "
	_, err := os.Stat(name)
	there := !strings.Contains(name, "/") && executable("./"+name) == nil
	switch {
	case assignment.MatchString(name):
		return fmt.Sprintf("a shell sets variables, or env: %senv %s COMMAND [ARG...]", run, name)
	case slices.Contains(ofShells, name):
		return fmt.Sprintf("%s is a shell's own: %ssh -c '%s …'", name, run, name)
	case there:
		return "it is in this directory, which PATH does not name: " + run + "./" + name
	case filepath.Ext(name) == ".py" && err == nil:
		return "Python runs it: " + run + "python3 " + name
	case strings.ContainsAny(name, " \t"):
		return "quotes make one name of several words; leave them out: " + run + name
	}
	return "check the name and PATH: " + run + "COMMAND [ARG...]"
}
