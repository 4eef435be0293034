package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file guesses what was meant by an option or a command that there is not.

// calledElsewhere is what others call what is ours: Slurm, other tools that watch memory,
// and habit. The first that the command has is it.
var calledElsewhere = map[string][]string{
	"mem": {"--limit"}, "memory": {"--limit"}, "mem-limit": {"--limit"}, "memory-limit": {"--limit"},
	"max-mem": {"--limit"}, "max-memory": {"--limit"}, "max-rss": {"--limit"}, "size": {"--limit"},
	"rule": {"--at"}, "rules": {"--at"}, "ladder": {"--at"}, "threshold": {"--at"},
	"json": {"--log-format json", "--events"}, "log": {"--events"}, "log-file": {"--events"}, "output": {"--events"},
	"delay": {"--interval"}, "every": {"--interval"}, "period": {"--interval"}, "poll": {"--interval"},
	"silent": {"--quiet"}, "dry": {"--dry-run"}, "simulate": {"--dry-run"}, "n": {"--dry-run"},
	"no-record": {"--record none"}, "no-loader": {"--loader off"}, "no-hook": {"--loader off"},
	"no-trim": {"--trim off"}, "no-at": {"--at none"}, "no-rules": {"--at none"},
	"process": {"--pid"}, "jobid": {"--job"}, "nodelist": {"--node"}, "host": {"--node"},
	"v": {"--version"}, "V": {"--version"}, "h": {"--help"},
}

// calledOtherwise is the same of commands.
var calledOtherwise = map[string]string{
	"ps": "status", "info": "status", "show": "status", "list": "status",
	"watch": "top", "monitor": "top", "htop": "top", "live": "top",
	"log": "report", "logs": "report", "history": "report", "why": "report", "advise": "report --advise", "html": "report --html FILE",
	"start": "run", "exec": "run", "launch": "run", "wrap": "run",
	"check": "doctor", "diagnose": "doctor", "test": "doctor", "limit": "limits", "simulate": "replay",
	"save": "checkpoint", "restart": "recycle", "drop": "trim", "h": "--help", "v": "--version",
}

// meantOption is the hint where an option is not one of the command's: without its dashes.
func meantOption(c *cli.Context, flags []cli.Flag, word string) string {
	all, name := optionNames(flags), ""
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
	if likely := notOurs(c, word); likely != "" {
		return likely
	}
	if list := meant(all, word); len(list) > 0 {
		return "did you mean " + strings.Join(list, " or ") + "?"
	}
	if slices.Contains(optionNames(c.App.Flags), dashed(word)) {
		return "it stands alone: " + programName + " " + dashed(word)
	}
	var others []string
	for _, o := range c.App.Commands {
		if slices.Contains(optionNames(o.Flags), dashed(word)) {
			others = append(others, o.Name)
		}
	}
	if len(others) > 0 {
		return dashed(word) + " is an option of " + programName + " " + strings.Join(others, ", ")
	}
	return ""
}

func optionNames(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		if !internal(f) {
			names = append(names, dashed(f.Names()[0]))
		}
	}
	return names
}

// mostMeant is how many options a guess may name.
const mostMeant = 3

// meant lists those of the options that were perhaps meant: what others call so, what
// differs by a slip, what begins so or has it for one of its words, and for a letter the
// only one with it.
func meant(options []string, word string) []string {
	for _, like := range calledElsewhere[word] {
		if name, _, _ := strings.Cut(like, " "); slices.Contains(options, name) {
			return []string{like}
		}
	}
	if near := text.Similar(word, options); near != "" && len(word) > 1 {
		return []string{near}
	}
	fits := []func(name string) bool{
		func(name string) bool { return strings.HasPrefix(word, name+"-") },               // --alert-url
		func(name string) bool { return len(word) != 2 && strings.HasPrefix(name, word) }, // --int, -j
		func(name string) bool { return slices.Contains(strings.Split(name, "-"), word) }, // --signal
	}
	for i, fit := range fits {
		var list []string
		for _, o := range options {
			if fit(strings.TrimPrefix(o, "--")) {
				list = append(list, o)
			}
		}
		if n := len(list); n == 1 || n > 0 && n <= mostMeant && i == len(fits)-1 {
			return list
		}
	}
	return nil
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
	near := calledOtherwise[word]
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
			if slices.Contains(optionNames(c.Command.Flags), o) {
				ways = append(ways, fmt.Sprintf("%s %s %s", name, o, word))
			}
		}
		if len(ways) > 0 {
			hint = "did you mean " + strings.Join(ways, " or ") + "?"
		}
	}
	return usagef(hint, "unexpected argument %q", word)
}
