package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	crashFile     = "crash"  // in the run directory, which goes with the run
	maxCrash      = 64 << 10 // read of it
	maxCrashWords = 200      // runes told
)

// captureCrash sends what the runtime writes when it ends the watcher to a file, because
// a crash can be hundreds of lines on the user's stderr; the holder reports the death in
// one. It returns what the watcher before this one died of, empty if unknown. A user who
// set GOTRACEBACK sees the whole crash.
func captureCrash(s *settings.Settings) (before string) {
	wanted := slices.ContainsFunc(hold.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOTRACEBACK=") })
	if wanted || s.Events == "/dev/stderr" || strings.HasPrefix(s.Events, "/dev/fd/2") || strings.HasPrefix(s.Events, "/proc/self/fd/2") {
		return ""
	}
	if s.Dir != "" {
		name := filepath.Join(s.Dir, crashFile)
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
var ourFrame = regexp.MustCompile(`(?m)^(?:github\.com/rsswarden/rsswarden/|main\.)(\S*)\(.*\n\t(?:\S*/)?(\w+\.go:[0-9]+)(?: |$)`)

// crashPlace is " at " and the innermost place of ours in the first goroutine, which is
// the one that panicked.
func crashPlace(text string) string {
	for _, m := range ourFrame.FindAllStringSubmatch(text, -1) {
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
