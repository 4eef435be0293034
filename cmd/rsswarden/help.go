package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func helpOf(c *cli.Command) string {
	return helpText(c.UsageText, c.Flags, c.Description, strings.Split(c.ArgsUsage, "\n"))
}

// helpText is what --help prints, in 24 lines of 80 columns. The usage of a flag names
// its value in backquotes. Flags without a usage are named only; the manual explains
// them.
func helpText(usage string, flags []cli.Flag, notes string, examples []string) string {
	var b strings.Builder
	for i, l := range strings.Split(usage, "\n") {
		fmt.Fprintf(&b, "%-6s %s\n", []string{"Usage:", ""}[min(i, 1)], l)
	}
	b.WriteByte('\n')
	var rows [][2]string
	for _, f := range flags {
		if documented(f).IsVisible() {
			rows = append(rows, helpRow(f))
		}
	}
	table(&b, rows)
	if notes += moreOptions(flags); notes != "" {
		b.WriteString("\n" + strings.TrimSuffix(notes, "\n") + "\n")
	}
	for i, l := range examples {
		fmt.Fprintf(&b, "%s %s\n", []string{"\nE.g.: ", "      "}[min(i, 1)], l)
	}
	return b.String()
}

// moreOptions names the flags that --help does not explain.
func moreOptions(flags []cli.Flag) string {
	head := "More, told by " + programName + " man:"
	text, width := head, len(head)
	for _, f := range flags {
		if documented(f).IsVisible() || internal(f) {
			continue
		}
		name := " --" + f.Names()[0]
		if width += len(name); width > 80 {
			text, width = text+"\n  ", 2+len(name)
		}
		text += name
	}
	if text == head {
		return ""
	}
	return text + "\n"
}

// documentedFlag is what each flag of the cli package is.
type documentedFlag interface {
	cli.DocGenerationFlag
	cli.VisibleFlag
}

func documented(f cli.Flag) documentedFlag { return f.(documentedFlag) }

// internal says that a flag is for rsswarden itself, and documented nowhere.
func internal(f cli.Flag) bool {
	return !documented(f).IsVisible() && optionNamed(f.Names()[0]).about == ""
}

func table(b *strings.Builder, rows [][2]string) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		fmt.Fprintf(b, "  %-*s  %s\n", width, r[0], r[1])
	}
}

// helpRow is a flag with its value's name, and its usage with its default.
func helpRow(f cli.Flag) [2]string {
	names, doc := f.Names(), documented(f)
	left, text := "--"+names[0], doc.GetUsage()
	if before, rest, found := strings.Cut(text, "`"); found {
		arg, after, _ := strings.Cut(rest, "`")
		left += " " + arg
		if text = before + arg + after; before == "" {
			text = strings.TrimPrefix(text, arg+": ")
		}
	}
	if len(names) > 1 {
		left = "-" + names[1] + ", " + left
	}
	if def := doc.GetValue(); doc.TakesValue() && def != "" && def != "0" {
		text += " [" + def + "]"
	}
	return [2]string{left, text}
}

// appHelp is what rsswarden --help prints.
func appHelp(app *cli.App) string {
	var b strings.Builder
	var rows [][2]string
	for _, c := range app.Commands {
		rows = append(rows, [2]string{c.Name, c.Usage})
	}
	table(&b, rows)
	fmt.Fprintf(&b, "\n%s COMMAND --help lists the options of each.\n", programName)
	return helpText(app.UsageText, app.Flags, b.String(), appExamples)
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

// appExamples end --help of the program, as examples of each command end its own.
var appExamples = []string{
	"srun rsswarden run -- python train.py     # in a batch script",
	"rsswarden man | man -l -                  # all of it",
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	if i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }); i >= 0 {
		return flags[i]
	}
	return nil
}
