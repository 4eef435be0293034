package proctree

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// longestEnviron is where an environment is cut; execve(2) takes no more than
// a quarter of the stack limit, which is 2 MiB as a rule.
const longestEnviron = 4 << 20

// Environ returns the variables of a process that keep returns true for, as it
// was given them when it was executed, by /proc/PID/environ
// (proc_pid_environ(5)). Only the process's own user may read it. It waits for
// the process's mmap_lock, so it can hang.
func Environ(proc string, pid int, keep func(name string) bool) (map[string]string, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, longestEnviron))
	if err != nil {
		return nil, fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
	}
	return parseEnviron(b, keep), nil
}

// parseEnviron reads NAME=VALUE, each ended by NUL. Of a name that is there
// twice the first counts, as with getenv(3).
func parseEnviron(b []byte, keep func(name string) bool) map[string]string {
	env := map[string]string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || !keep(name) {
			continue
		}
		if _, twice := env[name]; !twice {
			env[name] = value
		}
	}
	return env
}
