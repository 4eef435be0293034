package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// heapGrowth is the watcher's GOGC, in percent. Its heap has 1 MiB live for 64
// processes, and would grow to 4 MiB with the usual 100.
const heapGrowth = 50

// processors is the watcher's GOMAXPROCS. One loop does the work; on a node of 128 CPUs
// the runtime would keep caches, and collect garbage, for as many.
const processors = 2

// watcherCommand is what the holder starts. Not for users.
const watcherCommand = "watch"

// watch is the watcher, which the holder starts beside the user's command. Its exit
// status is not used.
func watch(p process) int {
	debug.SetGCPercent(heapGrowth)
	runtime.GOMAXPROCS(processors)
	link, err := hold.OpenLink()
	if err != nil {
		return fail(p, usagef(programName+" run -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", watcherCommand, err))
	}
	begin := link.Begin()
	s, err := settings.Decode(begin.Setup)
	if err != nil {
		// Another watcher would be told the same: with status 0 none is started.
		fail(p, fmt.Errorf("cannot read the settings, the command runs unwatched: %w", err))
		return exitOK
	}
	for _, fd := range inherited(s.Events) {
		if fd > 2 {
			unix.CloseOnExec(fd) // who reads it waits for its end, and not for that of what we start
		}
	}
	if text := captureCrash(&s); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	// OpenLink has replaced os.Stderr by a copy that survives a reader's end.
	log, closeLog := newLog(os.Stderr, s.LogFormat, s.Quiet)
	supervisor.Watch(supervisor.Options{
		Settings: s, Link: link, Proc: "/proc", Sys: "/sys", Self: os.Getpid(), Lookup: p.lookup, Log: log,
	})
	closeLog(500 * time.Millisecond)
	releaseDescriptors(append(inherited(s.Events), 2, int(os.Stderr.Fd())))
	_ = link.Close() // the holder sees the end of this process as well
	return exitOK
}

// requeueJob is the process that requeues the job. It is no child of the command and
// outlives watcher and holder.
func requeueJob(p process) int {
	err := supervisor.RequeueJob(os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, supervisor.ErrNoPlan):
		return fail(p, usagef("rsswarden run --at 97%:requeue -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", supervisor.RequeueCommand, err))
	case err != nil:
		fmt.Fprintln(p.stderr, err)
		return 1
	}
	return exitOK
}

// inherited is the descriptor that an events file /dev/fd/N names, which the watcher
// must inherit. Standard error it always has.
func inherited(path string) []int {
	if path == "/dev/stdout" {
		return []int{1}
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if n, err := strconv.Atoi(strings.TrimPrefix(path, dir)); err == nil && strings.HasPrefix(path, dir) && n > 0 && n != 2 {
			return []int{n}
		}
	}
	return nil
}
