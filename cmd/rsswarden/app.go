package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// Exit statuses of our own. All others are the command's.
const (
	exitOK         = 0
	exitUsage      = 2   // bad usage, nothing was started
	exitCannotRun  = 125 // we could not start the command
	exitNotExec    = 126 // the command was found and cannot be executed
	exitNotFound   = 127 // the command was not found
	exitStopped    = 137 // our `stop` ended it, unless --stop-status says otherwise
	programName    = "rsswarden"
	watcherCommand = "watch" // what the holder starts; not for users
)

// usageError is bad input, found before anything was started. Hint is what to
// type instead.
type usageError struct {
	msg, hint string
}

func (e *usageError) Error() string { return e.msg }

func usagef(hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), hint: hint}
}

// run is the whole program: it returns the exit status.
func run(p process) int {
	if len(p.args) > 1 && p.args[1] == watcherCommand {
		return watch(p)
	}
	status := exitOK
	app := &cli.App{
		Name:            programName,
		Usage:           "run a training job inside its memory limit",
		UsageText:       "rsswarden run [OPTIONS] [--] COMMAND [ARG...]\nrsswarden limits [--json] [--pid PID]",
		Version:         version,
		HideHelp:        true, // `run -- help` is a command of the user's, not a request for help
		HideHelpCommand: true,
		HideVersion:     true,
		// A rule may hold commas: --at '85%:exec=notify a,b'.
		DisableSliceFlagSeparator: true,
		Writer:                    p.stdout,
		ErrWriter:                 p.stderr,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Flags: []cli.Flag{
			helpFlag(),
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
		},
		Commands: []*cli.Command{
			runCommand(p, &status),
			limitsCommand(p),
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("version"):
				fmt.Fprintln(p.stdout, programName, version)
				return nil
			case c.Bool("help"):
				return cli.ShowAppHelp(c)
			case c.NArg() > 0:
				return usagef("rsswarden run -- "+c.Args().First()+" … runs a command; rsswarden --help lists what there is",
					"unknown command %q", c.Args().First())
			}
			return usagef("rsswarden run -- python train.py", "no command given")
		},
	}
	if err := app.Run(p.args); err != nil {
		return fail(p, err)
	}
	return status
}

// fail prints an error and, where there is one, the hint that goes with it,
// and returns the exit status.
func fail(p process, err error) int {
	fmt.Fprintln(p.stderr, "error:", oneLine(err.Error()))
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(p.stderr, "hint:", usage.hint)
		return exitUsage
	}
	var start *startError
	if errors.As(err, &start) {
		fmt.Fprintln(p.stderr, "hint:", start.hint)
		return start.status
	}
	return exitCannotRun
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

func onUsageError(c *cli.Context, err error, _ bool) error {
	hint := programName + " --help lists what there is"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != programName {
		hint = programName + " " + c.Command.Name + " --help lists the options"
	}
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
		msg = "unknown option --" + strings.TrimLeft(name, "-")
	} else if name, ok := strings.CutPrefix(msg, "flag needs an argument: -"); ok {
		msg = "option --" + strings.TrimLeft(name, "-") + " needs a value"
	}
	return &usageError{msg: msg, hint: hint}
}

func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "print this help"}
}
