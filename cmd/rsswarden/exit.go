package main

import "strconv"

// Exit statuses of our own. All others are the command's.
const (
	exitOK        = 0
	exitRefused   = 1   // trim: every process was refused
	exitRecord    = 1   // report, replay: no record could be read, or a file not written
	exitInPart    = 1   // doctor: run would protect this job only in part
	exitNotAll    = 1   // status, recycle, trim, checkpoint: no run is there, or not all have answered or done it
	exitUsage     = 2   // bad usage, nothing was started
	exitCannotRun = 125 // we could not start the command
	exitNotExec   = 126 // the command was found and cannot be executed
	exitNotFound  = 127 // the command was not found
	exitStopped   = 137 // our `stop` ended it, unless --stop-status says otherwise
)

// statuses tells of them.
var statuses = [][2]string{
	{strconv.Itoa(exitOK), "It was done. (Of run: the command ended so.)"},
	{strconv.Itoa(exitRefused), "trim: every process was refused; status, top --once, recycle, checkpoint: not all answered or did it;\n" +
		"doctor: run would protect only in part; report, replay: a record could not be read, or a file not written."},
	{strconv.Itoa(exitUsage), "Bad usage; nothing was started. report, replay: no record is there."},
	{strconv.Itoa(exitCannotRun), "run: the command could not be started."},
	{strconv.Itoa(exitNotExec), "run: the command was found and is not executable."},
	{strconv.Itoa(exitNotFound), "run: the command was not found."},
	{strconv.Itoa(exitStopped), "run: a stop rule ended it; --stop-status chooses another."},
}
