package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/roff"
)

func manCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:        "man",
		Usage:       "print the manual page, for man -l -",
		UsageText:   "rsswarden man",
		Args:        true,
		Description: "All commands with all options, what is in the events, files and variables.\nThat of the daemon is printed by rsswardend man.\n",
		ArgsUsage: examples(
			"rsswarden man | man -l -",
			"rsswarden man >~/.local/share/man/man1/rsswarden.1",
		),
	}, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return usagef("rsswarden man | man -l -", "unexpected argument %q", c.Args().First())
		}
		_, err := fmt.Fprint(p.stdout, manual(p, c.App.Commands))
		return err
	})
}

// page is a manual page, or one of docs/reference.
type page interface {
	Section(name string)
	Sub(name string)
	Text(text string)
	Term(tag, text string)
	Verbatim(text string)
}

// manual is the page rsswarden(1): commands and options as --help and the reference have
// them.
func manual(p process, all []*cli.Command) string {
	m := roff.New(roff.Title{Name: programName, Section: 1, Source: programName + " " + p.version, Manual: "User Commands"})
	m.Section("NAME")
	m.Text(programName + " - " + appUsage)
	m.Section("SYNOPSIS")
	var usage strings.Builder
	for _, c := range all {
		usage.WriteString(c.UsageText + "\n")
	}
	m.Verbatim(usage.String())
	m.Section("DESCRIPTION")
	m.Text(manDescription + "\n\n" + manPrecedence)
	m.Section("COMMANDS")
	writeCommands(m, all)
	m.Section("RULES")
	writeRules(m)
	m.Section("EXIT STATUS")
	writeStatuses(m)
	m.Section("EVENTS")
	m.Text(manEvents)
	for _, n := range event.Names() {
		m.Term(string(n), n.Says())
	}
	m.Section("ENVIRONMENT")
	writePairs(m, variables)
	m.Section("FILES")
	writePairs(m, manFiles)
	m.Section("EXAMPLES")
	m.Verbatim(strings.Join(appExamples, "\n"))
	for _, c := range all {
		m.Verbatim(c.ArgsUsage)
	}
	m.Section("SEE ALSO")
	m.Text("rsswardend(8), sbatch(1), srun(1), scontrol(1), cgroups(7), proc(5), ptrace(2)")
	return m.String()
}

func writeCommands(m page, all []*cli.Command) {
	told := map[string]string{} // options of a watch, by the command that explains them
	for _, c := range all {
		m.Sub(programName + " " + c.Name)
		m.Text(sentence(c.Usage))
		if c.Description != "" {
			m.Text(strings.ReplaceAll(c.Description, "\nExit status", "\n\nExit status"))
		}
		manOptions(m, c, told)
	}
}

func writeRules(m page) {
	m.Text(manRules)
	for _, l := range event.Limits {
		m.Term(string(l), l.Says())
	}
	m.Text("The actions, from mild to hard:")
	for _, a := range event.Actions {
		m.Term(a.Form(), a.Says())
	}
}

func writeStatuses(m page) {
	m.Text("That of the command; killed by a signal, rsswarden dies by the same. Otherwise:")
	writePairs(m, statuses)
}

func writePairs(m page, pairs [][2]string) {
	for _, v := range pairs {
		m.Term(v[0], v[1])
	}
}

// manOptions writes each option of a command; those of a watch with the first command
// that has them.
func manOptions(m page, c *cli.Command, told map[string]string) {
	watches := flagNamed(c.Flags, configOption.name) != nil
	var same []string
	for _, f := range c.Flags {
		name, row := f.Names()[0], helpRow(f)
		if internal(f) || name == "help" {
			continue
		}
		text := row[1]
		if o := optionNamed(name); watches && o.about != "" {
			if told[name] != "" {
				same = append(same, "--"+name)
				continue
			}
			told[name] = c.Name
			text = o.about + "\nDefault: " + o.shownDefault() + "."
		}
		m.Term(row[0], sentence(text))
	}
	m.Term("-h, --help", "Print what there is, and examples.")
	if len(same) > 0 {
		m.Text("As with run: " + strings.Join(same, ", ") + ".")
	}
}

// sentence is a text with a capital at its begin and a full stop behind it.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

const appUsage = "run a training job inside its memory limit"

const manDescription = `rsswarden run starts a command, watches its whole process tree against every
limit that can end it, warns early, has loader workers give memory back, and ends as the command
ended. Nothing of it needs a privilege. Should rsswarden itself fail, the command runs on as if it
had been started alone.

The other commands ask a run in progress (status, top), have it act now (recycle, trim,
checkpoint), watch what runs already (attach), show what can end a process (limits), whether
everything works here (doctor), and how a run ended (report, replay).`

const manPrecedence = `What is set in several places comes from the first of these: the option, the environment, the file
of --config, the site's file, the default.`

const manRules = `A rule of --at is [LIMIT ]WHEN:ACTION. WHEN is N% of the limit, free<SIZE when less than
SIZE is left of it, or eta<DURATION when it is forecast to be reached in that time. Without LIMIT it
is for each limit on memory. The limits:`

const manEvents = `--events FILE appends one JSON object a line; the field event names it. Sizes are in bytes and
their names end in _bytes, durations are in seconds and their names end in _s.`

var variables = [][2]string{
	{"RSSWARDEN_NAME", "Each option of run by its name in capitals, with _ for -: RSSWARDEN_LIMIT=3G, RSSWARDEN_DRY_RUN=true. Of an option that\nmay be repeated, one value a line."},
	{"RSSWARDEN", "off: run starts the command and nothing else."},
	{"RSSWARDEN_ALERT_TOKEN", "The token for --alert, in the place of --alert-token-file."},
	{"RSSWARDEN_RUNTIME", "Where files of running watches are, the same for all ranks of a job; else TMPDIR, else /tmp."},
	{"RSSWARDEN_EVENT", "Given to the command of an exec= rule."},
	{"XDG_STATE_HOME, XDG_CACHE_HOME", "Where records outside Slurm are, and the files of the loader hook."},
	{"NO_COLOR, TERM, CLICOLOR_FORCE", "No colour where NO_COLOR is set or TERM is dumb; colour where CLICOLOR_FORCE is set, in a pipe too. --color wins."},
	{"COLUMNS", "How wide lines are where they do not go to a terminal: 20 to 160, else 80."},
	{"LC_ALL, LC_CTYPE, LANG", "Where the locale is not UTF-8, lines for people are ASCII."},
	{"SLURM_JOB_ID, SLURM_PROCID, …", "Which job, step and rank this is."},
}

var manFiles = [][2]string{
	{"/etc/rsswarden.toml", "Options for every job of a site, and which of them users may not change."},
	{"$TMPDIR/rsswarden-UID/", "Of running watches: sockets, and under Slurm the records. /tmp where TMPDIR is not set."},
	{".rsswarden/", "In the directory a job was submitted from: the journals of its runs, and the list of runs of each node."},
	{"$XDG_STATE_HOME/rsswarden/", "Records and journals outside Slurm; ~/.local/state where XDG_STATE_HOME is not set."},
	{"$XDG_CACHE_HOME/rsswarden/", "The loader hook, and verdicts on PyTorch; ~/.cache where XDG_CACHE_HOME is not set."},
	{"/var/cache/rsswarden/torch/", "Verdicts on PyTorch of root's doctor --torch, for all users of the machine."},
}
