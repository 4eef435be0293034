package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// helpWords ask for help in the place of an argument.
var helpWords = []string{"help", "-h", "-help", "--help"}

// print writes a text to standard output.
func (p process) print(text string) error {
	return printed(p, func(w io.Writer) error { _, err := io.WriteString(w, styleOf(p, p.stdout).Plain(text)); return err })
}

// asksHelp says that a command has the one argument help. run is given a program of that
// name where there is one, or where "--" is before it.
func asksHelp(p process, c *cli.Context) bool {
	if c.NArg() != 1 || c.Args().First() != "help" {
		return false
	}
	_, err := p.lookPath("help")
	return c.Command.Name != "run" || err != nil && p.args[len(p.args)-2] != "--"
}

// versionText is what --version prints.
func versionText(version string) string {
	return fmt.Sprintf("%s %s\n%s\ntested with PyTorch %s; Slurm %s\n", programName, version, text.Build(), loader.Tested, slurm.Tested)
}

// helpOf is what --help of a command prints, in 24 lines of 80 columns: the flags that are
// not hidden.
func helpOf(c *cli.Command) string {
	rows := flagRows(c.Flags, func(f cli.Flag) bool { return documented(f).IsVisible() })
	return helpText(c, func(b *strings.Builder) { table(b, rows) })
}

// helpAllOf is what --help-all prints: all flags, by groups.
func helpAllOf(c *cli.Command) string {
	return helpText(c, func(b *strings.Builder) {
		for _, title := range groups(c.Flags) {
			b.WriteString(cmp.Or(title, "Other") + "\n")
			table(b, flagRows(c.Flags, func(f cli.Flag) bool { return !internal(f) && groupOf(f) == title }))
		}
	})
}

// groups are the titles of flags' groups in their order, those of none last.
func groups(flags []cli.Flag) (titles []string) {
	for _, f := range flags {
		if t := groupOf(f); t != "" && !slices.Contains(titles, t) {
			titles = append(titles, t)
		}
	}
	return append(titles, "")
}

func groupOf(f cli.Flag) string { return f.(cli.CategorizableFlag).GetCategory() }

// helpText puts the rows of flags between usage and examples.
func helpText(c *cli.Command, rows func(*strings.Builder)) string {
	var b strings.Builder
	for i, l := range strings.Split(c.UsageText, "\n") {
		fmt.Fprintf(&b, "%-6s %s\n", []string{"Usage:", ""}[min(i, 1)], l)
	}
	b.WriteByte('\n')
	rows(&b)
	if c.Description != "" {
		b.WriteString("\n" + strings.TrimSuffix(c.Description, "\n") + "\n")
	}
	for i, l := range strings.Split(c.ArgsUsage, "\n") {
		fmt.Fprintf(&b, "%s %s\n", []string{"\nE.g.: ", "      "}[min(i, 1)], l)
	}
	return b.String()
}

// documentedFlag is what each flag of the cli package is.
type documentedFlag interface {
	cli.DocGenerationFlag
	cli.VisibleFlag
}

func documented(f cli.Flag) documentedFlag { return f.(documentedFlag) }

// internal says that a flag is for rsswarden itself, and documented nowhere.
func internal(f cli.Flag) bool { return !documented(f).IsVisible() && groupOf(f) == "" }

func table(b *strings.Builder, rows [][2]string) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		fmt.Fprintf(b, "  %-*s  %s\n", width, r[0], r[1])
	}
}

func flagRows(flags []cli.Flag, want func(cli.Flag) bool) (rows [][2]string) {
	for _, f := range flags {
		if want(f) {
			rows = append(rows, helpRow(f))
		}
	}
	return rows
}

// helpRow is a flag with its value's name, and its usage with its default.
func helpRow(f cli.Flag) [2]string {
	names, doc := f.Names(), documented(f)
	text := doc.GetUsage()
	arg := valueName(text)
	left := strings.TrimSpace("--" + names[0] + " " + arg)
	if text = strings.TrimPrefix(text, "`"+arg+"`: "); arg != "" {
		text = strings.ReplaceAll(text, "`", "")
	}
	if len(names) > 1 {
		left = dashed(names[1]) + ", " + left
	}
	if def := doc.GetValue(); doc.TakesValue() && def != "" && def != "0" {
		text += " [" + def + "]"
	}
	return [2]string{left, text}
}

// valueName is what a usage calls the value, in backquotes as the cli package has it.
func valueName(usage string) string {
	_, rest, _ := strings.Cut(usage, "`")
	name, _, _ := strings.Cut(rest, "`")
	return name
}

const appHead = `rsswarden keeps a training job inside its Slurm memory limit.
Usage: rsswarden run [OPTIONS] [--] COMMAND [ARG...]     then, in sbatch:
       exec rsswarden run -- python train.py

`

const appTail = `Act     trim, recycle, checkpoint     act on a run now
Other   task-prolog, completion, man, version, help CMD

Options of run (all: rsswarden run --help-all)
`

// appHelp is what rsswarden --help prints, in 24 lines: the commands by groups, and the
// options of run that are used most.
func appHelp(all []*cli.Command) string {
	var b strings.Builder
	b.WriteString(appHead)
	category := ""
	for _, c := range all {
		switch head := c.Category; head {
		case "":
		case category:
			fmt.Fprintf(&b, "        %-12s%s\n", c.Name, c.Usage)
		default:
			category = head
			fmt.Fprintf(&b, "%-8s%-12s%s\n", head, c.Name, c.Usage)
		}
	}
	b.WriteString(appTail)
	var rows strings.Builder
	table(&rows, flagRows(all[0].Flags, func(f cli.Flag) bool { return documented(f).IsVisible() && groupOf(f) != "" }))
	lines := strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if i+1 < len(lines) && len(lines[i]) <= 40 && 40+len(lines[i+1]) <= 80 { // side by side
			fmt.Fprintf(&b, "%-41s", lines[i])
			i++
			lines[i] = strings.TrimSpace(lines[i])
		}
		b.WriteString(lines[i] + "\n")
	}
	return b.String()
}

// dashed is a flag's name as it is written.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "print this help"}
}

// appExamples begin those of the manual.
var appExamples = []string{
	"exec rsswarden run -- python train.py     # last line of a batch script",
	"rsswarden man | man -l -                  # all of it",
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	if i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }); i >= 0 {
		return flags[i]
	}
	return nil
}
