package loader

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the variables that Prepare reads and sets.
const (
	EnvDir     = "RSSWARDEN_DIR"     // the run directory, for the hook
	EnvRuntime = "RSSWARDEN_RUNTIME" // where run directories are made, before TMPDIR and /tmp
)

type Options struct {
	// Env is the environment the command is to get, as os.Environ has it. The
	// places for the run directory and for the hook are looked up in it.
	Env []string
	// Name is JOB.STEP.TASK under Slurm, and empty elsewhere: then a name is
	// made from the PID.
	Name string
	// Owner is the PID of the run, 0 for the calling process.
	Owner int
}

type Prepared struct {
	// Dir is the run directory.
	Dir string
	// Hook is the directory that goes first on PYTHONPATH.
	Hook string
	// Env is Options.Env with RSSWARDEN_DIR and PYTHONPATH set.
	Env []string
	// Passed says why a better place for the hook was passed over where one is
	// there and is not to be trusted, or cannot be used; nil where none was.
	Passed error
	// Distrusted says that Passed is for the content of that place, or the users that can
	// change it, and not because the system refuses to make anything there.
	Distrusted bool
	// Swept counts run directories of runs that had ended and were removed.
	Swept int
}

// Prepare makes the run directory, installs the hook where it is missing, and returns the
// environment for the command. Once the owner has ended, the directory is stale. On an
// error nothing is left behind, and Env is Options.Env as it was.
func Prepare(o Options) (Prepared, error) {
	plain := Prepared{Env: o.Env}
	me, err := identify(cmp.Or(o.Owner, os.Getpid()))
	if err != nil {
		return plain, fmt.Errorf("cannot prepare loader: %w", err)
	}
	dir, swept, err := makeRunDir(RunParents(func(name string) string { return getEnv(o.Env, name) }), o.Name, me)
	if err != nil {
		return plain, fmt.Errorf("cannot make run directory: %w", err)
	}
	hook, passed, err := layHook(hookParents(o.Env), dir)
	if err != nil {
		return plain, errors.Join(fmt.Errorf("cannot write the loader hook: %w", err), Remove(dir))
	}
	return Prepared{Dir: dir, Hook: hook, Env: Environ(o.Env, dir, hook), Passed: passed, Distrusted: distrusted(passed), Swept: swept}, nil
}

// Environ is env for a command that has a run directory and a hook.
func Environ(env []string, dir, hook string) []string {
	env = setEnv(env, EnvDir, dir)
	found := false
	for i, kv := range env {
		// All of them, where there are several: C takes the first, a shell the last.
		if old, ok := strings.CutPrefix(kv, "PYTHONPATH="); ok {
			found = true
			env[i] = "PYTHONPATH=" + hook
			if old != "" {
				env[i] += ":" + old
			}
		}
	}
	if !found {
		env = append(env, "PYTHONPATH="+hook)
	}
	return env
}

// Asked are the entries of env that [Prepare] looks at.
func Asked(env []string) (some []string) {
	for _, key := range []string{EnvRuntime, "TMPDIR", "XDG_CACHE_HOME", "HOME"} {
		if v := getEnv(env, key); v != "" {
			some = append(some, key+"="+v)
		}
	}
	return some
}

// Places are the directories that [Prepare] may look into.
func Places(env []string) []string {
	return append(RunParents(func(name string) string { return getEnv(env, name) }), hookParents(env)...)
}

// RunParents lists the places for run directories, best first, by what get
// returns of an environment.
func RunParents(get func(name string) string) []string {
	var list []string
	for _, key := range []string{EnvRuntime, "TMPDIR"} {
		if dir := get(key); filepath.IsAbs(dir) {
			list = append(list, filepath.Clean(dir))
		}
	}
	return append(list, "/tmp")
}

// hookParents lists the places for the hook, best first: the user's cache.
func hookParents(env []string) []string {
	if dir := getEnv(env, "XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return []string{filepath.Join(dir, "rsswarden")}
	}
	if dir := getEnv(env, "HOME"); filepath.IsAbs(dir) && dir != "/" {
		return []string{filepath.Join(dir, ".cache", "rsswarden")}
	}
	return nil
}

// getEnv returns what a process started with env would see under key.
func getEnv(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// setEnv returns a copy of env in which key has one value, at its old place
// where it had one.
func setEnv(env []string, key, value string) []string {
	out := make([]string, 0, len(env)+1)
	done := false
	for _, kv := range env {
		if !strings.HasPrefix(kv, key+"=") {
			out = append(out, kv)
		} else if !done {
			out = append(out, key+"="+value)
			done = true
		}
	}
	if !done {
		out = append(out, key+"="+value)
	}
	return out
}

// Remove removes a run directory. That it is gone already is no error.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if err != nil {
		return fmt.Errorf("cannot remove run directory: %w", err)
	}
	// The directory of all runs of this user, where this was the last.
	_ = os.Remove(filepath.Dir(dir))
	return nil
}
