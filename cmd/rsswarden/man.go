package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/roff"
)

func manCommand(p process) *cli.Command {
	return &cli.Command{
		Name:            "man",
		Usage:           "print the manual page, for man -l -",
		UsageText:       "rsswarden man",
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description:     "All commands with all options, what is in the events, files and variables.\nThat of the daemon is printed by rsswardend man.\n",
		Flags:           []cli.Flag{helpFlag()},
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return showHelp(p, c)
			}
			if c.NArg() > 0 {
				return usagef("rsswarden man | man -l -", "unexpected argument %q", c.Args().First())
			}
			_, err := fmt.Fprint(p.stdout, manual(p))
			return err
		},
	}
}

// manual is the page rsswarden(1). Commands and options are those that the program
// has: what --help tells of them, and what the reference does.
func manual(p process) string {
	m := roff.New(roff.Title{Name: programName, Section: 1, Source: programName + " " + version, Manual: "User Commands"})
	m.Section("NAME")
	m.Text(programName + " - " + appUsage)
	m.Section("SYNOPSIS")
	all := commands(p, new(int))
	var usage strings.Builder
	for _, c := range all {
		usage.WriteString(c.UsageText + "\n")
	}
	m.Verbatim(usage.String())
	m.Section("DESCRIPTION")
	m.Text(manDescription)
	m.Section("COMMANDS")
	told := map[string]string{} // an option of run, by where it is told of
	for _, c := range all {
		m.Sub(programName + " " + c.Name)
		m.Text(sentence(c.Usage))
		if c.Description != "" {
			m.Text(strings.ReplaceAll(c.Description, "\nExit status", "\n\nExit status"))
		}
		manOptions(m, c, told)
	}
	m.Section("RULES")
	m.Text(manRules)
	for _, l := range limitsTold {
		m.Term(string(l.name), l.says)
	}
	m.Text("The actions, from mild to hard:")
	for _, a := range actionsTold {
		m.Term(a.form, a.says)
	}
	m.Section("EXIT STATUS")
	m.Text("That of the command; killed by a signal, rsswarden dies by the same. Otherwise:")
	for _, s := range statuses {
		m.Term(s[0], s[1])
	}
	m.Section("EVENTS")
	m.Text(manEvents)
	for _, e := range eventsTold {
		m.Term(string(e.name), e.says)
	}
	m.Section("ENVIRONMENT")
	for _, v := range variablesTold {
		m.Term(v[0], v[1])
	}
	m.Section("FILES")
	for _, f := range filesTold {
		m.Term(f[0], f[1])
	}
	m.Section("EXAMPLES")
	m.Verbatim(strings.Join(appExamples, "\n"))
	for _, c := range all {
		m.Verbatim(strings.Join(examplesOf[c.Name], "\n"))
	}
	m.Section("SEE ALSO")
	m.Text("rsswardend(8), sbatch(1), srun(1), scontrol(1), cgroups(7), proc(5), ptrace(2)")
	return m.String()
}

// manOptions tells of each option of a command. Those of a watch are told of with the
// first command that has them.
func manOptions(m *roff.Page, c *cli.Command, told map[string]string) {
	watches := flagNamed(c.Flags, configOption.name) != nil
	var same []string
	for _, f := range c.Flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok || internal(f) || f.Names()[0] == "help" {
			continue
		}
		name := f.Names()[0]
		row := helpRow(f.Names(), doc)
		text := row[1]
		if watches && about[name] != "" {
			if told[name] != "" {
				same = append(same, "--"+name)
				continue
			}
			told[name] = c.Name
			text = about[name] + "\nDefault: " + optionNamed(name).shownDefault() + "."
		}
		m.Term(row[0], sentence(text))
	}
	m.Term("-h, --help", "Print what there is, and examples.")
	if len(same) > 0 {
		m.Text("As with run: " + strings.Join(same, ", ") + ".")
	}
}

func optionNamed(name string) option {
	for _, list := range [][]option{watchOptions, runOptions} {
		for _, o := range list {
			if o.name == name {
				return o
			}
		}
	}
	return option{}
}

// sentence is a text with a capital at its begin and a full stop behind it.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}
