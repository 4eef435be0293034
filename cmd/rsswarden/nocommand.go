package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// typeset are dashes and quotes that stand for - and " where a command line was copied
// from a text.
var (
	quotes  = []rune{'“', '”', '„', '‘', '’'}
	typeset = append([]rune{'–', '—', '‒', '−'}, quotes...)
)

// ofShells are commands that only a shell has, and no file. Most change that shell, so that
// in one started for them alone they would do nothing.
var ofShells = []string{".", "alias", "cd", "conda", "eval", "exec", "export", "module", "set", "source", "ulimit", "umask", "unset"}

var (
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	suffix     = regexp.MustCompile(`^[KMGTkmgt]([Ii]?[Bb])?$`)
)

// likelyMeant is what to type instead of a command that is not there.
func likelyMeant(name string) string {
	run := programName + " run -- "
	_, err := os.Stat(name)
	there := !strings.Contains(name, "/") && executable("./"+name) == nil
	first, size := utf8.DecodeRuneInString(name)
	switch {
	case slices.Contains(typeset, first):
		anew := "--" + strings.TrimLeftFunc(name[size:], func(r rune) bool { return r == '-' || slices.Contains(typeset, r) })
		if slices.Contains(quotes, first) {
			anew = "COMMAND [ARG...]"
		}
		return fmt.Sprintf("its first character, %c, is a dash or quote of typesetting, as web pages have them; type it anew: %s run %s", first, programName, anew)
	case assignment.MatchString(name):
		return fmt.Sprintf("a shell sets variables, or env: %senv %s COMMAND [ARG...]", run, name)
	case slices.Contains(ofShells, name):
		return fmt.Sprintf("%s is a shell's own: give it a line before %s run, whose command inherits what it sets", name, programName)
	case suffix.MatchString(name):
		return fmt.Sprintf("a size is one word, as in %s run --limit 3%s -- COMMAND", programName, name)
	case name == "python" && inPath("python3"):
		return "python3 is there: " + run + "python3 …"
	case there:
		return "it is in this directory, which PATH does not name: " + run + "./" + name
	case filepath.Ext(name) == ".py" && err == nil:
		return "Python runs it: " + run + "python3 " + name
	case filepath.Ext(name) == ".sh" && err == nil:
		return "a shell runs it: " + run + "bash " + name
	case strings.ContainsAny(name, " \t"):
		return "quotes make one name of several words; leave them out: " + run + name
	}
	return "check the name and PATH: " + run + "COMMAND [ARG...]"
}

func inPath(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}
