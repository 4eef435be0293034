package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
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
	if len(p.args) == 2 && p.args[1] == asideCommand {
		return answerAside(p)
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
	status := exitOK
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
		Commands:                  commands(p, &status),
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
	if err := app.Run(p.args); err != nil {
		return fail(p, err)
	}
	return status
}

const appUsageText = runUsage + "\n" + programName + " COMMAND [OPTIONS] [ARG...]"

func appFlags() []cli.Flag {
	return []cli.Flag{helpFlag(), &cli.BoolFlag{Name: "version", Usage: "print the version"}}
}

// commands are all that a user has, in the order of --help.
func commands(p process, status *int) []*cli.Command {
	return []*cli.Command{
		runCommand(p, status),
		attachCommand(p, status),
		limitsCommand(p),
		statusCommand(p, status),
		topCommand(p, status),
		recycleCommand(p, status),
		trimCommand(p, status),
		checkpointCommand(p, status),
		reportCommand(p),
		replayCommand(p),
		doctorCommand(p, status),
		manCommand(p),
		completionCommand(p),
	}
}

// fail prints an error and, where there is one, the hint that goes with it,
// and returns the exit status.
func fail(p process, err error) int {
	status, hint, format := exitCannotRun, "", ""
	var usage *usageError
	var start *startError
	var rec *recordError
	var lead *leaderError
	if errors.As(err, &usage) {
		status, hint = exitUsage, usage.hint
	} else if errors.As(err, &rec) {
		status, hint = exitRecord, rec.hint
	} else if errors.As(err, &lead) {
		status, hint = exitNotAll, lead.hint
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

// sentences puts the lines of a text, which are sentences, behind each other.
func sentences(s string) string {
	return oneLine(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// oneLine keeps what names have in them from breaking a line or steering a
// terminal.
func oneLine(s string) string {
	return text.Plain(s)
}

// eachOnOneLine does so for each line of a text.
func eachOnOneLine(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(oneLine(strings.TrimSuffix(l, "\n")) + "\n")
	}
	return b.String()
}
