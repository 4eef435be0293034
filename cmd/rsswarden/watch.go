package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// processors is the watcher's GOMAXPROCS. One loop does the work; on a node of 128 CPUs
// the runtime would keep caches, and collect garbage, for as many.
const processors = 2

// watcherCommand is what the holder starts. Not for users.
const watcherCommand = "watch"

// watch is the watcher, which the holder starts beside the user's command. Its exit
// status is not used.
func watch(p process) int {
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
	return watchOver(p, link, s)
}

// watchOver watches the command of a link until it has ended.
func watchOver(p process, link *hold.Link, s settings.Settings) int {
	runtime.GOMAXPROCS(processors)
	keep := inherited(s.Events)
	for _, fd := range keep {
		if fd > 2 {
			unix.CloseOnExec(fd) // who reads it waits for its end, and not for that of what we start
		}
	}
	if text := captureCrash(s.Events, s.Dir); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	// OpenLink has replaced os.Stderr by a copy that survives a reader's end.
	p.color = &s.Color
	log, closeLog := newLog(os.Stderr, styleOf(p, os.Stderr), s.Log)
	supervisor.Watch(supervisor.Options{
		Settings: s, Link: link, Proc: "/proc", Sys: "/sys", Self: os.Getpid(), Lookup: p.lookup, Log: log,
		Keep: keep, Served: served,
	})
	closeLog(500 * time.Millisecond)
	if hold.Forked() && link.Ended() {
		removeRunDir(&s) // a holder that has not woken up does not
	}
	releaseDescriptors(append(inherited(s.Events), 2, int(os.Stderr.Fd())))
	_ = link.Close() // the holder sees the end of this process as well
	return exitOK
}

// requeueJob is the process that requeues the job. It is no child of the command and
// outlives watcher and holder.
func requeueJob(p process) int {
	err := action.RequeueJob(os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, action.ErrNoPlan):
		return fail(p, usagef("rsswarden run --at 97%:requeue -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", action.RequeueCommand, err))
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

const (
	crashFile     = "crash"  // in the run directory, which goes with the run
	maxCrash      = 64 << 10 // read of it
	maxCrashWords = 200      // runes told
)

// captureCrash sends what the runtime writes when it ends the watcher to a file, because
// a crash can be hundreds of lines on the user's stderr; the holder reports the death in
// one. It returns what the watcher before this one died of, empty if unknown. A user who
// set GOTRACEBACK sees the whole crash.
func captureCrash(events, dir string) (before string) {
	wanted := slices.ContainsFunc(hold.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOTRACEBACK=") })
	if wanted || events == "/dev/stderr" || strings.HasPrefix(events, "/dev/fd/2") || strings.HasPrefix(events, "/proc/self/fd/2") {
		return ""
	}
	if dir != "" {
		name := filepath.Join(dir, crashFile)
		if f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err == nil {
			before = crashWords(f)
			_ = f.Truncate(0)
			_, _ = f.Seek(0, io.SeekStart)
			_ = debug.SetCrashOutput(f, debug.CrashOptions{}) // it keeps a copy
			f.Close()
		}
	}
	releaseDescriptors([]int{2}) // os.Stderr is a copy
	return before
}

// crashWords is the first message of a crash.
func crashWords(r io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(r, maxCrash))
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "SIG") {
			return fmt.Sprintf("the watcher before this one crashed: %s%s", text.Cut(text.Plain(line), maxCrashWords), crashPlace(string(data)))
		}
	}
	return ""
}

// ourFrame is a function of ours in a stack, with its file and line. An inlined one has
// no arguments.
const ourFrame = `(?m)^(?:github\.com/rsswarden/rsswarden/|main\.)(\S*)\(.*\n\t(?:\S*/)?(\w+\.go:[0-9]+)(?: |$)`

// crashPlace is " at " and the innermost place of ours in the first goroutine, which is
// the one that panicked.
func crashPlace(text string) string {
	for _, m := range regexp.MustCompile(ourFrame).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "supervisor/fault.") {
			return " at " + m[2]
		}
	}
	return ""
}

// releaseDescriptors gives up the user's files. A thread that waits for a hanging disk
// outlives this process with its descriptors, and would keep the user's stderr open.
func releaseDescriptors(fds []int) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for _, fd := range fds {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC) // a thread that still writes must not meet another file there
	}
}
