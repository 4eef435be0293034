package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// notStarted says that the command name could not be started because of err, with the exit
// status of a shell.
func notStarted(name string, err error) error {
	said := name
	if name == "" {
		said = `""`
	}
	e := &failure{error: &fs.PathError{Op: "cannot start", Path: said, Err: errnoOf(err)}, status: exitNotExec}
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

// typographic are dashes and quotes that stand for - and " where a command line was copied
// from a text.
var (
	quotes      = []rune{'“', '”', '„', '‘', '’'}
	typographic = append([]rune{'–', '—', '‒', '−'}, quotes...)
)

// shellBuiltins are commands of shells alone. Most change that shell, so in one of their
// own they do nothing.
var shellBuiltins = []string{".", "alias", "cd", "conda", "eval", "exec", "export", "module", "set", "source", "ulimit", "umask", "unset"}

const (
	assignment = `^[A-Za-z_][A-Za-z0-9_]*=`
	suffix     = `^[KMGTkmgt]([Ii]?[Bb])?$`
)

// missingCommandHint is what to type instead of a command that does not exist.
func missingCommandHint(name string) string {
	run := programName + " run -- "
	_, err := os.Stat(name)
	there := !strings.Contains(name, "/") && executable("./"+name) == nil
	_, noPython3 := exec.LookPath("python3")
	first, size := utf8.DecodeRuneInString(name)
	switch {
	case slices.Contains(typographic, first):
		instead := "--" + strings.TrimLeftFunc(name[size:], func(r rune) bool { return r == '-' || slices.Contains(typographic, r) })
		if slices.Contains(quotes, first) {
			instead = "COMMAND [ARG...]"
		}
		return fmt.Sprintf("its first character, %c, is a dash or quote of typesetting, as web pages have them; type it again: %s run %s", first, programName, instead)
	case regexp.MustCompile(assignment).MatchString(name):
		return fmt.Sprintf("a shell sets variables, or env: %senv %s COMMAND [ARG...]", run, name)
	case slices.Contains(shellBuiltins, name):
		return fmt.Sprintf("%s is a shell builtin: run it on a line before %s run, whose command inherits what it sets", name, programName)
	case regexp.MustCompile(suffix).MatchString(name):
		return fmt.Sprintf("a size is one word, as in %s run --limit 3%s -- COMMAND", programName, name)
	case name == "python" && noPython3 == nil:
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
