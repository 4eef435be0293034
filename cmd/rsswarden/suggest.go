package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// foreignFlags is what others call flags that are no options, see option.foreign.
var foreignFlags = map[string]string{
	"process": "--pid", "jobid": "--job", "nodelist": "--node", "host": "--node", "v": "--version", "h": "--help",
}

// foreignCommands is the same of commands.
var foreignCommands = map[string]string{
	"ps": "status", "info": "status", "show": "status", "list": "report",
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
	var others []string
	for _, o := range c.App.Commands {
		if slices.Contains(flagNames(o.Flags), dashed(word)) {
			others = append(others, o.Name)
		}
	}
	likely := suggestFlags(all, word)
	switch ofSlurm := name == "run" && slices.Contains(slurmFlags, word); {
	case (name == "report" || name == "replay") && slices.Contains([]string{"j", "job", "jobid", "job-id"}, word):
		return "a job is named by its number alone: " + programName + " " + name + " 46"
	case name == "attach" && slices.Contains([]string{"p", "pid", "process"}, word):
		return "a process is named by its number alone: " + programName + " attach 4711"
	case word == alertToken:
		return "everybody on this node can read a command line: put the token into the variable RSSWARDEN_ALERT_TOKEN, or into a file of --alert-token-file"
	case ofSlurm && word == "c":
		return "a command line for a shell is written " + programName + " run -- sh -c '…'; -c of srun stands before " + programName + ": srun -c 4 " + programName + " run -- COMMAND"
	case ofSlurm:
		return "if srun's is meant, it stands before " + programName + ": srun " + dashed(word) + " … " + programName + " run -- COMMAND"
	case len(likely) > 0:
		return "did you mean " + strings.Join(likely, " or ") + "?"
	case slices.Contains(flagNames(c.App.Flags), dashed(word)):
		return "it stands alone: " + programName + " " + dashed(word)
	case len(others) > 0:
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
	names := []string{"help", "version", "--help", "--version"}
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
	if jobID().MatchString(word) {
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
		if value == "" || strings.HasPrefix(value, "-") || o.apply(&settings.Settings{}, []string{value}) != nil {
			continue
		}
		if o.name == alertOption {
			written = "--alert URL" // what is secret in it is no business of ours
		}
		return fmt.Sprintf("%s came after the command, so %s gets it", written, command[0])
	}
	return ""
}

// onUsageError says what the flag package found wrong in our own words.
func onUsageError(c *cli.Context, err error, _ bool) error {
	hint := programName + " --help lists what there is"
	flags := c.App.Flags
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != programName {
		hint = programName + " " + c.Command.Name + " --help lists the options"
		flags = c.Command.Flags
	}
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		if likely := suggestOption(c, flags, name); likely != "" {
			hint = likely
		}
		return usagef(hint, "unknown option %s", dashed(name))
	}
	if name, ok := strings.CutPrefix(msg, "flag needs an argument: -"); ok {
		return usagef(hint, "option %s needs a value", dashed(strings.TrimLeft(name, "-")))
	}
	var value, name string
	if n, _ := fmt.Sscanf(msg, "invalid boolean value %q for -%s", &value, &name); n == 2 {
		name = strings.TrimSuffix(name, ":")
		return usagef("write "+dashed(name)+" alone, or "+dashed(name)+"=false", "%s %q is neither true nor false", dashed(name), value)
	}
	return usagef(hint, "%s", msg)
}
