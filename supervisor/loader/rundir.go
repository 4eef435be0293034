package loader

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// identity says who made a run directory and where it is good. The file holds
// a "KEY VALUE" a line: the hook reads it at the start of a Python, where
// importing a JSON parser would be felt.
type identity struct {
	Owner  rss.ProcID
	BootID string // /proc/sys/kernel/random/boot_id
	PIDNS  string // link of /proc/self/ns/pid
}

const identityFile = "identity"

func identify(pid int) (identity, error) {
	boot, err := procfile.Read("/proc/sys/kernel/random/boot_id", procfile.Small)
	if err != nil {
		return identity{}, err
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return identity{}, err
	}
	start, err := proctree.StartTime("/proc", pid)
	if err != nil {
		return identity{}, err
	}
	return identity{rss.ProcID{PID: pid, Start: start}, strings.TrimSpace(string(boot)), ns}, nil
}

func (i identity) format() []byte {
	return fmt.Appendf(nil, "version 1\npid %d\nstart %d\nboot_id %s\npid_ns %s\n", i.Owner.PID, i.Owner.Start, i.BootID, i.PIDNS)
}

func parseIdentity(data []byte) (identity, error) {
	var i identity
	version := ""
	for l := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		var err error
		switch key {
		case "version":
			version = value
		case "pid":
			i.Owner.PID, err = strconv.Atoi(value)
		case "start":
			i.Owner.Start, err = strconv.ParseUint(value, 10, 64)
		case "boot_id":
			i.BootID = value
		case "pid_ns":
			i.PIDNS = value
		}
		if err != nil {
			return i, fmt.Errorf("%w: identity: %s %q", errMalformed, key, value)
		}
	}
	if version != "1" || i.Owner.PID <= 0 || i.Owner.Start == 0 || i.BootID == "" || i.PIDNS == "" {
		return i, fmt.Errorf("%w: identity of %d bytes", errMalformed, len(data))
	}
	return i, nil
}

// makeRunDir makes the run directory under the first parent that is fit.
func makeRunDir(parents []string, name string, me identity) (dir string, swept int, err error) {
	var errs []error
	for _, parent := range parents {
		dir, swept, err := makeRunDirIn(parent, name, me)
		if err == nil {
			return dir, swept, nil
		}
		errs = append(errs, err)
	}
	return "", 0, errors.Join(errs...)
}

func makeRunDirIn(parent, name string, me identity) (dir string, swept int, err error) {
	if parent, err = nodedir.Resolve(parent); err != nil {
		return "", 0, err
	}
	if err := nodedir.CheckLocal(parent); err != nil {
		return "", 0, err
	}
	all := filepath.Join(parent, "rsswarden-"+strconv.Itoa(os.Geteuid()))
	if err := nodedir.Make(all); err != nil {
		return "", 0, err
	}
	swept = sweep(all, me)
	base := cleanName(name)
	if base == "" {
		base = fmt.Sprintf("run.%d.%d", me.Owner.PID, me.Owner.Start)
	}
	dir, err = takeDir(all, base)
	if err != nil {
		return "", swept, err
	}
	// The umask may have taken bits away.
	err = os.Chmod(dir, 0o700)
	if err == nil {
		err = replaceFile(filepath.Join(dir, identityFile), me.format())
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", swept, err
	}
	return dir, swept, nil
}

// takeRunDir takes a run directory that the holder has made, or what is left of it.
func takeRunDir(dir string, me identity) (swept int, err error) {
	all := filepath.Dir(dir)
	if err := cmp.Or(nodedir.Make(all), nodedir.Make(dir)); err != nil {
		return 0, err
	}
	if i, err := readIdentity(dir); err != nil || i != me {
		if err := replaceFile(filepath.Join(dir, identityFile), me.format()); err != nil {
			return 0, err
		}
	}
	return sweep(all, me), nil
}

// takeDir makes a directory under all that is named base, with a number behind
// it where a run of the same task lives: one started by the other, or beside it.
func takeDir(all, base string) (string, error) {
	n := 0
	for range 1000 {
		dir := filepath.Join(all, base)
		if n > 0 {
			dir += "-" + strconv.Itoa(n)
		}
		err := os.Mkdir(dir, 0o700)
		switch {
		case err == nil:
			return dir, nil
		case errors.Is(err, fs.ErrExist):
			n++
		case errors.Is(err, fs.ErrNotExist):
			// A run that ended was the last, and has removed all of it just now.
			if err := nodedir.Make(all); err != nil {
				return "", err
			}
		default:
			return "", err
		}
	}
	return "", fmt.Errorf("no name is free for %s", filepath.Join(all, base))
}

// sweep removes the run directories under all whose owner has ended. Those of
// another PID namespace are left alone: whether their owner lives cannot be
// seen from here.
func sweep(all string, me identity) (swept int) {
	names, err := readDirNames(all, 4096)
	if err != nil {
		return 0
	}
	for _, name := range names {
		dir := filepath.Join(all, name)
		if nodedir.CheckOwn(dir) != nil {
			continue
		}
		i, err := readIdentity(dir)
		sameBoot := i.BootID == me.BootID
		if err != nil || sameBoot && (i.PIDNS != me.PIDNS || proctree.Lives("/proc", i.Owner)) {
			continue
		}
		if os.RemoveAll(dir) == nil {
			swept++
		}
	}
	return swept
}

// cleanName makes name one element of a path.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '_', r == '-', r == '+':
			return r
		}
		return '_'
	}, name)
	if len(name) > 128 {
		name = name[:128]
	}
	return strings.TrimLeft(name, ".")
}

// Owner returns who made a run directory, and whether that process lives: then
// its watcher speaks with the loaders, and no other may. The directory must
// be this user's and of this boot and PID namespace.
func Owner(dir string) (owner rss.ProcID, lives bool, err error) {
	if err := nodedir.CheckOwn(dir); err != nil {
		return owner, false, fmt.Errorf("cannot use run directory: %w", err)
	}
	i, err := readIdentity(dir)
	var me identity
	if err == nil {
		me, err = identify(os.Getpid())
	}
	switch {
	case err != nil:
		return owner, false, fmt.Errorf("cannot read run directory: %w", err)
	case i.BootID != me.BootID || i.PIDNS != me.PIDNS:
		return owner, false, fmt.Errorf("cannot use run directory %s: it is of another boot or PID namespace", dir)
	}
	return i.Owner, proctree.Lives("/proc", i.Owner), nil
}

func readIdentity(dir string) (identity, error) {
	data, _, err := readSmall(filepath.Join(dir, identityFile))
	if err != nil {
		return identity{}, err
	}
	return parseIdentity(data)
}

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
	// Dir is the run directory where the holder has made one, else empty.
	Dir string
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

// NoRunDir begins an error of [Prepare] for which the place of the hook is not to blame.
const NoRunDir = "cannot make run directory"

// Prepare makes the run directory, installs the hook where it is missing, and returns the
// environment for the command. Once the owner has ended, the directory is stale. On an
// error nothing is left behind, and Env is Options.Env as it was.
func Prepare(o Options) (Prepared, error) {
	plain := Prepared{Env: o.Env}
	me, err := identify(cmp.Or(o.Owner, os.Getpid()))
	if err != nil {
		return plain, fmt.Errorf("cannot prepare loader: %w", err)
	}
	dir, swept := o.Dir, 0
	if dir != "" {
		swept, err = takeRunDir(dir, me)
	} else {
		dir, swept, err = makeRunDir(RunParents(func(name string) string { return getEnv(o.Env, name) }), o.Name, me)
	}
	if err != nil {
		return plain, fmt.Errorf("%s: %w", NoRunDir, err)
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
	return slices.Compact(append(list, "/tmp"))
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
