package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/screen"
)

// The scripts hold what differs from shell to shell. What there is to choose from, each
// asks this program (wordsCommand), so that all know the same, and what is there now.
//
//go:embed completion
var completionScripts embed.FS

var shells = []string{"bash", "zsh", "fish"}

func completionCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		UsageText: "rsswarden completion " + strings.Join(shells, "|"),
		Args:      true,
		Description: "Commands, options and their values, records that are here for report and replay,\n" +
			"jobs of yours for --job. After run --, the command's own completion works.\n" +
			"A key press waits for Slurm for a second at most.\n",
		ArgsUsage: examples(
			"source <(rsswarden completion bash)            # in ~/.bashrc",
			"rsswarden completion zsh >~/.zfunc/_rsswarden  # a directory of $fpath",
			"rsswarden completion fish >~/.config/fish/completions/rsswarden.fish",
		),
	}, func(c *cli.Context) error {
		shell := c.Args().First()
		if c.NArg() != 1 || !slices.Contains(shells, shell) {
			return usagef("rsswarden completion bash", "say for which shell: %s", alternatives(shells, "or"))
		}
		text, err := completionScripts.ReadFile("completion/" + programName + "." + shell)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%s", text)
		return err
	})
}

// wordsCommand is what the completion scripts call, with the words after the program's
// name up to the cursor. It prints a candidate a line, with a tab and its meaning, and
// what the shell itself completes: ":files", ":dirs", ":command N" if the user's own
// command begins with word N. Not for users.
const wordsCommand = "completion-words"

// wordsPatience is how long a key press may take: a file system or Slurm may hang.
const wordsPatience = time.Second

// candidate is one to choose.
type candidate struct{ text, says string }

// bare are candidates without a meaning beside them.
func bare(list []string) (all []candidate) {
	for _, text := range list {
		all = append(all, candidate{text: text})
	}
	return all
}

// choices are what there is to choose.
type choices struct {
	words []candidate
	kind  string // files, dirs, command N; empty for none
}

func printWords(p process, all []*cli.Command) int {
	args := p.args[2:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return fail(p, usagef("rsswarden completion bash", "%s is not for use by hand", wordsCommand))
	}
	o, _ := within(wordsPatience, func() choices { return offers(p, all, args) })
	for _, w := range o.words {
		text := w.text
		if w.says != "" {
			text += "\t" + oneLine(w.says)
		}
		if strings.HasPrefix(w.text, args[len(args)-1]) && oneLine(w.text) == w.text {
			fmt.Fprintln(p.stdout, text)
		}
	}
	if o.kind != "" {
		fmt.Fprintln(p.stdout, ":"+o.kind)
	}
	return exitOK
}

// offers is what fits the last of the words.
func offers(p process, all []*cli.Command, args []string) choices {
	last := args[len(args)-1]
	if len(args) == 1 {
		if strings.HasPrefix(last, "-") {
			return choices{words: []candidate{{"--help", "print this help"}, {"--version", "print the version"}}}
		}
		o := commandWords(all)
		o.words = append(o.words, candidate{"help", "print help, of a command"}, candidate{"version", "print the version"})
		return o
	}
	if args[0] == "help" && len(args) == 2 {
		return commandWords(all)
	}
	i := slices.IndexFunc(all, func(c *cli.Command) bool { return c.Name == args[0] })
	if i < 0 {
		return choices{}
	}
	c := all[i]
	var option cli.Flag // what the next word is the value of
	var before []string // arguments
	ended := false      // there are no more options
	for i, w := range args[1 : len(args)-1] {
		switch {
		case option != nil:
			option = nil
		case w == "--" && !ended:
			ended = true
		case strings.HasPrefix(w, "-") && w != "-" && !ended:
			if !strings.Contains(w, "=") {
				option = valued(flagNamed(c.Flags, strings.TrimLeft(w, "-")))
			}
		case c.Name == "run":
			return choices{kind: fmt.Sprintf("command %d", i+1)}
		default:
			before = append(before, w)
		}
	}
	name, value, joined := strings.Cut(last, "=")
	switch dashed := strings.HasPrefix(last, "-") && !ended; {
	case option != nil:
		return valuesOf(p, option, last)
	case c.Name == "run" && (!dashed || last == "-"):
		return choices{kind: fmt.Sprintf("command %d", len(args)-1)}
	case dashed && joined:
		f := valued(flagNamed(c.Flags, strings.TrimLeft(name, "-")))
		if f == nil {
			return choices{}
		}
		o := valuesOf(p, f, value)
		for i := range o.words {
			o.words[i].text = name + "=" + o.words[i].text
		}
		return o
	case dashed:
		return choices{words: optionWords(c, args[1:len(args)-1])}
	}
	return arguments(p, c.Name, before, last)
}

func commandWords(all []*cli.Command) (o choices) {
	for _, c := range all {
		o.words = append(o.words, candidate{c.Name, c.Usage})
	}
	return o
}

// valued is the flag where it takes a value.
func valued(f cli.Flag) cli.Flag {
	if f != nil && documented(f).TakesValue() {
		return f
	}
	return nil
}

// commonSignals are those that trainings catch; any other may be typed.
var commonSignals = []string{"USR1", "USR2", "TERM", "INT", "HUP"}

// optionWords are the options of a command that may still be given.
func optionWords(c *cli.Command, given []string) []candidate {
	var list []candidate
	for _, f := range c.Flags {
		name := "--" + f.Names()[0]
		_, many := f.(*cli.StringSliceFlag)
		if internal(f) || !many && slices.ContainsFunc(given, func(g string) bool { g, _, _ = strings.Cut(g, "="); return g == name }) {
			continue
		}
		list = append(list, candidate{name, helpRow(f)[1]})
	}
	return list
}

// valuesOf are the values of an option; files and directories are for the shell.
func valuesOf(p process, f cli.Flag, typed string) choices {
	name, arg := f.Names()[0], valueName(documented(f).GetUsage())
	o := choices{words: bare(optionNamed(name).values)}
	switch {
	case name == "at":
		o.words = ruleWords(typed)
	case name == "record":
		o.words = []candidate{{"auto", "as rsswarden sees fit"}, {"none", "neither record nor journal"}}
	case name == "job":
		o.words = jobWords(p)
	case name == "pid":
		o.words = processWords(typed)
	case name == "sort":
		o.words = bare(screen.Keys())
	case arg == "SIG":
		o.words = bare(commonSignals)
	}
	switch arg {
	case "FILE", "PATH":
		o.kind = "files"
	case "DIR":
		o.kind = "dirs"
	}
	return o
}

// ruleWords are rules as far as they are typed: first a limit and when, then the action.
func ruleWords(typed string) []candidate {
	var list []candidate
	when, _, acts := strings.Cut(typed, ":")
	if acts {
		for _, a := range event.Actions {
			form, _, _ := strings.Cut(a.Form(), ",")
			name, arg, takes := strings.Cut(form, "=")
			name = when + ":" + name
			switch {
			case arg == "SIG":
				for _, s := range commonSignals {
					list = append(list, candidate{name + "=" + s, a.Says()})
				}
			case takes:
				list = append(list, candidate{name + "=", a.Says()})
			default:
				if _, err := event.ParseRule(name); err == nil {
					list = append(list, candidate{name, a.Says()})
				}
			}
		}
		return list
	}
	limit := ""
	list = append(list, candidate{"none", "clear the ladder that is there by default"})
	if name, _, has := strings.Cut(typed, " "); has {
		limit, list = name+" ", nil
	} else {
		for _, l := range event.Limits {
			text := string(l) + " 90%:"
			if !startsRule(text) {
				text = string(l) + " eta<10m:"
			}
			list = append(list, candidate{text, l.Says()})
		}
	}
	return append(list, slices.DeleteFunc([]candidate{
		{limit + "85%:", "at 85 % of the limit"},
		{limit + "95%:", "at 95 % of the limit"},
		{limit + "free<1G:", "when less than 1 GiB is left"},
		{limit + "eta<5m:", "when it is forecast to be reached in five minutes"},
	}, func(w candidate) bool { return !startsRule(w.text) })...)
}

// startsRule says that the limit can have the condition, as far as a rule is typed.
func startsRule(when string) bool {
	_, err := event.ParseRule(when + string(event.ActionWarn))
	return err == nil
}

// maxCandidates bounds what is listed of runs and processes.
const maxCandidates = 100

// arguments are the candidates after the options.
func arguments(p process, command string, given []string, typed string) choices {
	switch first := len(given) == 0; {
	case command == "report", command == "replay" && first:
		return choices{words: recordWords(p, given, typed), kind: "files"}
	case command == "attach" && first:
		return choices{words: processWords(typed)}
	case command == "doctor":
		return choices{kind: "files"}
	case command == "completion" && first:
		return choices{words: bare(shells)}
	}
	return choices{}
}

// recordWords are the runs that are here: those of a job by its number.
func recordWords(p process, given []string, typed string) []candidate {
	var list []candidate
	for _, f := range record.Find(recordPlaces(p)...) {
		w := candidate{f.ID, "run " + f.ID}
		if f.Job != "" {
			w = candidate{f.Job, "job, " + f.ID}
		}
		same := func(o candidate) bool { return o.text == w.text }
		if strings.HasPrefix(w.text, typed) && !slices.ContainsFunc(list, same) && !slices.Contains(given, w.text) && len(list) < maxCandidates {
			list = append(list, w)
		}
	}
	return list
}

// jobPatience is how long squeue may take: less than the whole may.
const jobPatience = wordsPatience * 7 / 10

// jobWords are this user's running jobs: those with a leader on this node, and those of
// squeue if it answers in time.
func jobWords(p process) []candidate {
	queued := make(chan []candidate, 1)
	go func() { queued <- queuedJobs() }()
	here, _ := within(jobPatience, func() []string { return remote.Jobs(p.caller()) })
	list := <-queued
	for _, job := range here {
		list = append(list, candidate{job, "rsswarden runs here"})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.text, b.text) })
	return slices.CompactFunc(list, func(a, b candidate) bool { return a.text == b.text })
}

func queuedJobs() []candidate {
	ctx, cancel := context.WithTimeout(context.Background(), jobPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "squeue", "--noheader", "--user="+strconv.Itoa(os.Getuid()), "--states=RUNNING", "--format=%A %j")
	cmd.WaitDelay = wordsPatience / 20
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var list []candidate
	for l := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSpace(l), " ")
		if jobID().MatchString(id) && len(list) < maxCandidates {
			list = append(list, candidate{id, name})
		}
	}
	return list
}

// processWords are this user's processes, the newest first.
func processWords(typed string) (list []candidate) {
	pids := slices.DeleteFunc(ownProcesses(), func(pid int) bool { return !strings.HasPrefix(strconv.Itoa(pid), typed) })
	for _, pid := range slices.Backward(pids) {
		// Of a kernel thread, and of what has ended, it is empty.
		line, err := procfile.Read(fmt.Sprintf("/proc/%d/cmdline", pid), procfile.Cmdline)
		if err == nil && len(line) > 0 && len(list) < maxCandidates {
			says := strings.ReplaceAll(strings.TrimRight(string(line[:min(len(line), 200)]), "\x00"), "\x00", " ")
			list = append(list, candidate{strconv.Itoa(pid), says})
		}
	}
	return list
}
