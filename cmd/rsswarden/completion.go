package main

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts hold what differs from shell to shell. What there is to choose from, each
// asks this program (wordsCommand), so that all know the same, and what is there now.
//
//go:embed completion
var completionScripts embed.FS

var shells = []string{"bash", "zsh", "fish"}

func completionCommand(p process) *cli.Command {
	return &cli.Command{
		Name:            "completion",
		Usage:           "print what has a shell complete what you type",
		UsageText:       "rsswarden completion " + strings.Join(shells, "|"),
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description: "Commands, options and their values, records that are here for report and replay,\n" +
			"jobs of yours for --job. Behind run the command completes as it does alone.\n" +
			"No key press waits for longer than a second, Slurm asleep or not.\n",
		Flags: []cli.Flag{helpFlag()},
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return showHelp(p, c)
			}
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
		},
	}
}
