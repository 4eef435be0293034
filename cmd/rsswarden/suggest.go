package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// foreignFlags is what others call flags that are no options, see option.foreign.
var foreignFlags = map[string]string{
	"process": "--pid", "jobid": "--job", "nodelist": "--node", "host": "--node", "v": "--version", "V": "--version", "h": "--help",
}

// foreignCommands is the same of commands.
var foreignCommands = map[string]string{
	"ps": "status", "info": "status", "show": "status", "list": "status",
	"watch": "top", "monitor": "top", "htop": "top", "live": "top",
	"log": "report", "logs": "report", "history": "report", "why": "report", "advise": "report --advise", "html": "report --html FILE",
	"start": "run", "exec": "run", "launch": "run", "wrap": "run",
	"check": "doctor", "diagnose": "doctor", "test": "doctor", "limit": "limits", "simulate": "replay",
	"save": "checkpoint", "restart": "recycle", "drop": "trim", "h": "--help", "v": "--version",
}

// suggestOption is the hint where an option is not one of the command's: without its dashes.
func suggestOption(c *cli.Context, flags []cli.Flag, word string) string {
	all, name := flagNames(flags), ""
	if c.Command != nil {
		name = c.Command.Name
	}
	if (name == "report" || name == "replay") && slices.Contains([]string{"j", "job", "jobid", "job-id"}, word) {
		return "a job is named by its number alone: " + programName + " " + name + " 46"
	}
	if name == "attach" && slices.Contains([]string{"p", "pid", "process"}, word) {
		return "a process is named by its number alone: " + programName + " attach 4711"
	}
	if word == alertToken {
		return "everybody on this node can read a command line: put the token into the variable RSSWARDEN_ALERT_TOKEN, or into a file of --alert-token-file"
	}
	if likely := slurmFlagHint(c, word); likely != "" {
		return likely
	}
	if list := suggestFlags(all, word); len(list) > 0 {
		return "did you mean " + strings.Join(list, " or ") + "?"
	}
	if slices.Contains(flagNames(c.App.Flags), dashed(word)) {
		return "it stands alone: " + programName + " " + dashed(word)
	}
	var others []string
	for _, o := range c.App.Commands {
		if slices.Contains(flagNames(o.Flags), dashed(word)) {
			others = append(others, o.Name)
		}
	}
	if len(others) > 0 {
		return dashed(word) + " is an option of " + programName + " " + strings.Join(others, ", ")
	}
	return ""
}

func flagNames(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		if !internal(f) {
			names = append(names, dashed(f.Names()[0]))
		}
	}
	return names
}

// maxSuggested is how many options a guess may name.
const maxSuggested = 3

// suggestFlags are the flags that were perhaps meant: what others call so, what differs
// by a slip, what begins so or has the word in it, and for a letter the only one with
// it.
func suggestFlags(known []string, word string) []string {
	if like := foreignName(word); like != "" && slices.Contains(known, strings.Fields(like)[0]) {
		return []string{like}
	}
	if near := text.Similar(word, known); near != "" && len(word) > 1 {
		return []string{near}
	}
	fits := []func(name string) bool{
		func(name string) bool { return strings.HasPrefix(word, name+"-") },               // --alert-url
		func(name string) bool { return len(word) != 2 && strings.HasPrefix(name, word) }, // --int, -j
		func(name string) bool { return slices.Contains(strings.Split(name, "-"), word) }, // --signal
	}
	for i, fit := range fits {
		var list []string
		for _, o := range known {
			if fit(strings.TrimPrefix(o, "--")) {
				list = append(list, o)
			}
		}
		if n := len(list); n == 1 || n > 0 && n <= maxSuggested && i == len(fits)-1 {
			return list
		}
	}
	return nil
}

// foreignName is our flag for what others call word, with a value where one is meant.
func foreignName(word string) string {
	for _, o := range options {
		for _, f := range o.foreign {
			if name, value, _ := strings.Cut(f, " "); name == word {
				return strings.TrimSpace("--" + o.name + " " + value)
			}
		}
	}
	return foreignFlags[word]
}

// unknownCommand says what to do with a word that is no command of ours, and what follows it.
func unknownCommand(p process, app *cli.App, words []string) error {
	word := words[0]
	names := []string{"--help", "--version"}
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	runs := programName + " run -- " + word + " … runs a command"
	if filepath.Ext(word) == ".py" {
		runs = programName + " run -- python3 " + word + " … runs a script of Python"
	}
	near := foreignCommands[word]
	if near == "" {
		near = text.Similar(word, names)
	}
	if near == "" && len(word) > 2 {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, word) }); i >= 0 {
			near = names[i]
		}
	}
	if word == "help" && len(words) == 2 && app.Command(words[1]) != nil {
		near = words[1] + " --help"
	}
	switch _, err := p.lookPath(word); {
	case slices.Contains([]string{"kill", "stop", "cancel"}, word):
		return usagef("no command of ours ends a job: scancel does, and the rule of run --at '95%:stop'", "unknown command %q", word)
	case near == "":
		return usagef(runs+"; "+programName+" --help lists what there is", "unknown command %q", word)
	case err == nil: // which may be meant as well
		return usagef("did you mean "+programName+" "+near+"? "+runs, "unknown command %q", word)
	}
	return usagef("did you mean "+programName+" "+near+"?", "unknown command %q", word)
}

// unexpected says what to do with an argument where a command has none.
func unexpected(c *cli.Context) error {
	word, name := c.Args().First(), programName+" "+c.Command.Name
	hint := name + " --help lists the options"
	if jobID.MatchString(word) {
		var ways []string
		for _, o := range []string{"--job", "--pid"} {
			if slices.Contains(flagNames(c.Command.Flags), o) {
				ways = append(ways, fmt.Sprintf("%s %s %s", name, o, word))
			}
		}
		if len(ways) > 0 {
			hint = "did you mean " + strings.Join(ways, " or ") + "?"
		}
	}
	return usagef(hint, "unexpected argument %q", word)
}

// slurmFlags are options of srun and sbatch. People replace srun by rsswarden run and
// keep its options.
var slurmFlags = []string{
	"N", "nodes", "ntasks", "ntasks-per-node", "c", "cpus-per-task", "G", "gpus", "gpus-per-node", "gpus-per-task", "gres",
	"p", "partition", "A", "account", "t", "time", "w", "nodelist", "J", "job-name", "o", "exclusive", "overlap", "mpi", "cpu-bind",
	"mem-per-cpu", "mem-per-gpu", "export", "jobid", "qos", "constraint", "chdir", "D", "l", "label", "u", "unbuffered",
}

// slurmFlagHint is the hint for an option of srun or of a shell given to `run`.
func slurmFlagHint(c *cli.Context, word string) string {
	switch {
	case c.Command == nil || c.Command.Name != "run":
		return ""
	case word == "c":
		return "a command line for a shell is written " + programName + " run -- sh -c '…'; -c of srun stands before " + programName + ": srun -c 4 " + programName + " run -- COMMAND"
	case slices.Contains(slurmFlags, word):
		return "if srun's is meant, it stands before " + programName + ": srun " + dashed(word) + " … " + programName + " run -- COMMAND"
	}
	return ""
}

// misplacedFlag asks about an option of ours after the command, with a value that it
// takes, if no -- says where the command begins. It is only a question: scripts have
// options of the same names.
func misplacedFlag(args, command []string) string {
	if at := len(args) - len(command); at < 1 || args[at-1] == "--" || filepath.Base(command[0]) == programName {
		return ""
	}
	for i, word := range command[1:] {
		if word == "--" {
			break
		}
		name, value, joined := strings.Cut(word, "=")
		at := slices.IndexFunc(options, func(o option) bool { return "--"+o.name == name })
		if at < 0 {
			continue
		}
		o := options[at]
		written := word
		switch {
		case o.name == "quiet":
			continue
		case joined:
		case o.kind == config.Truth:
			value = "true"
		case i+2 < len(command):
			value = command[i+2]
			written += " " + value
		}
		if value == "" || strings.HasPrefix(value, "-") || o.apply(&supervisor.Settings{}, []string{value}) != nil {
			continue
		}
		if o.name == alertOption {
			written = "--alert URL" // what is secret in it is no business of ours
		}
		return fmt.Sprintf("%s stands behind %s and is left to it; if rsswarden is meant: %s run %s -- %s …; if not, write -- before %s",
			written, command[0], programName, written, command[0], command[0])
	}
	return ""
}

// foreignActions is what others call our actions.
var foreignActions = map[string]string{
	"kill": "stop", "end": "stop", "abort": "stop", "terminate": "stop", "cancel": "stop",
	"checkpoint": "signal=USR2", "save": "signal=USR2", "restart": "recycle", "renew": "recycle",
	"log": "warn", "print": "warn", "notify": "warn", "alert": "warn", "drop": "trim", "resubmit": "requeue", "requeu": "requeue",
}

// suggestRule is a hint for text that is no rule, empty if nothing is likely. A
// suggestion is always a rule.
func suggestRule(text string) string {
	if several := rulesJoined(text); len(several) > 1 {
		return "give each rule an --at of its own: --at '" + strings.Join(several, "' --at '") + "'"
	}
	when, what, ok := strings.Cut(text, ":")
	if !ok {
		when, what, _ = strings.Cut(text, "=") // 90%=stop
	}
	for _, halves := range [][2]string{{when, what}, {what, when}} {
		guess := suggestCond(halves[0]) + ":" + suggestAction(halves[1])
		if r, err := event.ParseRule(guess); err == nil {
			return fmt.Sprintf("did you mean '%s'?", r)
		}
	}
	return ""
}

// rulesJoined are the rules that commas join.
func rulesJoined(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		r, err := event.ParseRule(part)
		if err != nil {
			return nil
		}
		list = append(list, r.String())
	}
	return list
}

func suggestCond(text string) string {
	limit, cond := "", strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text)), "≥", ">")
	for _, l := range event.Limits {
		if rest, ok := strings.CutPrefix(cond, string(l)+" "); ok {
			limit, cond = string(l)+" ", rest
		}
	}
	cond = strings.ReplaceAll(cond, " ", "")
	for _, word := range []string{"memory", "mem", "used", "rss"} {
		cond = strings.TrimPrefix(cond, word)
	}
	cond = strings.TrimLeft(cond, ">=")
	if share, err := strconv.ParseFloat(cond, 64); err == nil {
		if share <= 1 {
			share *= 100 // a share of one, which nobody means in percent
		}
		cond = strconv.FormatFloat(math.Round(share*100)/100, 'f', -1, 64) + "%"
	}
	return limit + cond
}

func suggestAction(line string) string {
	word := strings.ToLower(strings.TrimSpace(line))
	if like := foreignActions[word]; like != "" {
		return like
	}
	var names []string
	for _, a := range event.Actions {
		names = append(names, string(a))
	}
	if slices.Contains(names, word) { // stop is a signal's name too
		return word
	}
	if _, err := event.ParseSignal(word); err == nil {
		return "signal=" + word
	}
	if near := text.Similar(word, names); near != "" {
		return near
	}
	return strings.TrimSpace(line)
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

var (
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	suffix     = regexp.MustCompile(`^[KMGTkmgt]([Ii]?[Bb])?$`)
)

// missingCommandHint is what to type instead of a command that does not exist.
func missingCommandHint(name string) string {
	run := programName + " run -- "
	_, err := os.Stat(name)
	there := !strings.Contains(name, "/") && executable("./"+name) == nil
	first, size := utf8.DecodeRuneInString(name)
	switch {
	case slices.Contains(typographic, first):
		anew := "--" + strings.TrimLeftFunc(name[size:], func(r rune) bool { return r == '-' || slices.Contains(typographic, r) })
		if slices.Contains(quotes, first) {
			anew = "COMMAND [ARG...]"
		}
		return fmt.Sprintf("its first character, %c, is a dash or quote of typesetting, as web pages have them; type it anew: %s run %s", first, programName, anew)
	case assignment.MatchString(name):
		return fmt.Sprintf("a shell sets variables, or env: %senv %s COMMAND [ARG...]", run, name)
	case slices.Contains(shellBuiltins, name):
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
