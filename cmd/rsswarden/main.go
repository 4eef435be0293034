// Command rsswarden runs a training job inside its memory limit.
//
//	rsswarden run [OPTIONS] [--] COMMAND [ARG...]
//
// starts the command, watches the whole process tree against the limit that
// really kills here, warns early, has loader workers give memory back, and
// ends as the command ended.
package main

import (
	"errors"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

func main() {
	p := process{
		args:    os.Args,
		lookup:  os.LookupEnv,
		env:     hold.Environ(),
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		site:    siteFile,
		version: version,
		color:   new(string),
	}
	if hold.Forked() || hold.Woken() {
		p.mute()
	}
	os.Exit(runProgram(p))
}

// runProgram is the whole program: it returns the exit status.
func runProgram(p process) int {
	if setup := hold.Setup(); len(setup) > 0 && hold.Woken() {
		return resume(p, setup)
	}
	if len(p.args) > 1 {
		switch name, alone := p.args[1], len(p.args) == 2; {
		case name == ioCommand && alone:
			return serveIO(p)
		case name == action.RequeueCommand && alone:
			return requeueJob(p)
		case name == taskCommand && alone:
			return watchTask(p)
		case name == prologCommand && p.get("SLURM_SCRIPT_CONTEXT") == "epilog_task":
			return waitBeside(p)
		case name == exportCommand:
			return exportRecord(p)
		case name == watcherCommand, name == hold.RestCommand:
			return watch(p)
		case name == wordsCommand:
			return printWords(p, commands(p))
		}
	}
	known := []*cli.Command{runCommand(p)}
	if !hold.Forked() && !hold.Woken() { // else a mistake is the holder's to explain
		known = commands(p)
	}
	cli.HelpFlag = nil // each command looks at its own, see command
	app := &cli.App{
		Name:            programName,
		Usage:           appUsage,
		Version:         p.version,
		HideHelp:        true, // `run -- help` is a command of the user's, not a request for help
		HideHelpCommand: true,
		HideVersion:     true,
		// A rule may hold commas: --at '85%:exec=notify a,b'.
		DisableSliceFlagSeparator: true,
		Writer:                    p.stdout,
		ErrWriter:                 p.stderr,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Flags:                     []cli.Flag{helpFlag(), &cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Usage: "print the version"}},
		Commands:                  known,
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			switch first := c.Args().First(); {
			case c.Bool("version"), first == "version" && len(args) == 1:
				return p.print(versionText(p.version))
			case c.Bool("help"):
				return printHelp(p, c.App, nil)
			case first == "help":
				return printHelp(p, c.App, args[1:])
			case first == "version" && slices.Contains(helpWords, args[1]):
				return printHelp(p, c.App, nil)
			case first == "version":
				return usagef("rsswarden version", "unexpected argument %q", args[1])
			case len(args) > 0:
				return unknownCommand(p, c.App, args)
			}
			return usagef("rsswarden run -- python train.py", "no command given")
		},
	}
	err := app.Run(p.args)
	var status exitStatus
	var watcher *asWatcher
	var holder *asHolder
	switch {
	case errors.As(err, &holder):
		p.stderr = os.Stderr
		return resume(p, holder.settings.Encode())
	case hold.Woken():
		resumeAlone(p, err)
	case errors.As(err, &watcher):
		p.stderr = os.Stderr
		return watchOver(p, watcher.link, watcher.settings)
	case hold.Forked():
		hold.Leave()
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	return fail(p, err)
}

// printHelp prints what `rsswarden help [CMD]` asks for.
func printHelp(p process, app *cli.App, args []string) error {
	if len(args) == 0 || slices.Contains(helpWords, args[0]) || args[0] == "version" { // of which there is no more to say
		return p.print(appHelp(app.Commands))
	}
	c := app.Command(args[0])
	switch {
	case c == nil:
		return unknownCommand(p, app, args)
	case len(args) > 1:
		return usagef(programName+" help "+args[0], "unexpected argument %q", args[1])
	}
	return p.print(helpOf(c))
}

// commands are all that a user has beside help and version, in the order of --help.
func commands(p process) []*cli.Command {
	return []*cli.Command{
		runCommand(p),
		attachCommand(p),
		taskPrologCommand(p),
		statusCommand(p),
		topCommand(p),
		limitsCommand(p),
		doctorCommand(p),
		reportCommand(p),
		replayCommand(p),
		trimCommand(p),
		recycleCommand(p),
		checkpointCommand(p),
		completionCommand(p),
		manCommand(p),
	}
}
