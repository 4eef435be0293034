package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	programName    = "rsswarden"
	watcherCommand = "watch" // what the holder starts; not for users
)

// usageError is bad input, found before anything was started.
type usageError struct {
	msg, hint string
}

func (e *usageError) Error() string { return e.msg }

func usagef(hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), hint: hint}
}

// run is the whole program: it returns the exit status.
func run(p process) int {
	if len(p.args) == 2 && p.args[1] == ioCommand {
		return serveIO(p)
	}
	if len(p.args) > 1 && p.args[1] == exportCommand {
		return exportRecord(p)
	}
	if len(p.args) > 1 && p.args[1] == watcherCommand {
		return watch(p)
	}
	if len(p.args) == 2 && p.args[1] == supervisor.RequeueCommand {
		return requeueJob(p)
	}
	if len(p.args) > 1 && p.args[1] == wordsCommand {
		return printWords(p)
	}
	cli.HelpFlag = nil // ours is looked at by each command, see showHelp
	app := &cli.App{
		Name:            programName,
		Usage:           appUsage,
		UsageText:       appUsageText,
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
		Flags:                     appFlags(),
		Commands:                  commands(p),
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("version"):
				fmt.Fprintln(p.stdout, programName, version)
				return nil
			case c.Bool("help"):
				fmt.Fprint(p.stdout, appHelp(c.App))
				return nil
			case c.NArg() > 0:
				return unknownCommand(p, c.App, c.Args().Slice())
			}
			return usagef("rsswarden run -- python train.py", "no command given")
		},
	}
	err := app.Run(p.args)
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	return fail(p, err)
}

const appUsageText = runUsage + "\n" + programName + " COMMAND [OPTIONS] [ARG...]"

func appFlags() []cli.Flag {
	return []cli.Flag{helpFlag(), &cli.BoolFlag{Name: "version", Usage: "print the version"}}
}

// commands are all that a user has, in the order of --help.
func commands(p process) []*cli.Command {
	return []*cli.Command{
		runCommand(p),
		attachCommand(p),
		limitsCommand(p),
		statusCommand(p),
		topCommand(p),
		recycleCommand(p),
		trimCommand(p),
		checkpointCommand(p),
		reportCommand(p),
		replayCommand(p),
		doctorCommand(p),
		manCommand(p),
		completionCommand(p),
	}
}

// command adds what all commands share: --help, whatever else is on the line, and bad
// usage in our own words. Args says that the command takes arguments.
func command(p process, c cli.Command, action func(*cli.Context) error) *cli.Command {
	c.HideHelp, c.HideHelpCommand, c.OnUsageError = true, true, onUsageError
	c.Flags = append(c.Flags, helpFlag())
	c.Action = func(ctx *cli.Context) error {
		switch {
		case ctx.Bool("help"):
			fmt.Fprint(p.stdout, helpOf(ctx.Command))
			return nil
		case !c.Args && ctx.NArg() > 0:
			return unexpected(ctx)
		}
		return action(ctx)
	}
	return &c
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "for programs"} }

// exitStatus is the error of a command that has said what there is to say.
type exitStatus int

func (s exitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }

func withStatus(status int, err error) error {
	if err == nil && status != exitOK {
		return exitStatus(status)
	}
	return err
}

// fail prints an error with its hint and returns the exit status.
func fail(p process, err error) int {
	status, hint, format := exitCannotRun, "", ""
	var usage *usageError
	var start *startError
	var rec *recordError
	var asked *remote.Error
	if errors.As(err, &usage) {
		status, hint = exitUsage, usage.hint
	} else if errors.As(err, &rec) {
		status, hint = exitRecord, rec.hint
	} else if errors.As(err, &asked) {
		if status, hint = exitNotAll, asked.Hint; asked.Usage {
			status = exitUsage
		}
	} else if errors.As(err, &start) {
		status, hint = start.status, start.hint
	}
	var told *formatted
	if errors.As(err, &told) {
		format = told.format
	}
	fmt.Fprint(p.stderr, line(format, "error", sentences(err.Error()), oneLine(hint)))
	return status
}

func (p process) warn(text string) { fmt.Fprint(p.stderr, line("", "warning", text, "")) }

// sentences joins the lines of a text, which are sentences.
func sentences(s string) string {
	return oneLine(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// oneLine keeps names from breaking a line or steering a terminal.
func oneLine(s string) string {
	return text.Plain(s)
}

// plainLines does so for each line of a text.
func plainLines(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(oneLine(strings.TrimSuffix(l, "\n")) + "\n")
	}
	return b.String()
}
