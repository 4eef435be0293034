package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file finds out, on the side, why a process has no loader hook. The kernel
// takes the process's mmap_lock for its environment and its mappings, and that can
// hang.

// obstacle is one thing that keeps the loader hook out of a process.
type obstacle struct {
	what string // "RSSWARDEN_DIR is not in its environment"
	cure string // an order: "pass RSSWARDEN_DIR on"
}

// cleaned is an environment without anything of ours.
var cleaned = obstacle{
	"neither RSSWARDEN_DIR nor the hook's directory on PYTHONPATH is in its environment",
	"pass RSSWARDEN_DIR and PYTHONPATH on to it (of Apptainer --env, or no --cleanenv)",
}

// reachAsk asks for what stands between a process and the hook.
type reachAsk struct {
	key rankKey
	dir string // the run directory of our own command
}

type reachAnswer struct {
	key       rankKey
	obstacles []obstacle
	torch     bool // it has loaded PyTorch; looked for where there are obstacles alone
}

func newReachReader(proc string) *probe.Reader[reachAsk, reachAnswer] {
	return probe.New(nil, func(ask reachAsk) reachAnswer {
		fault.Point("reach")
		a := reachAnswer{key: ask.key, obstacles: obstacles(proc, ask.key.id, ask.dir)}
		a.torch = len(a.obstacles) > 0 && hasTorch(proc, ask.key.id.PID)
		// It may have taken long, and the PID may be another's by now.
		if start, err := proctree.StartTime(proc, ask.key.id.PID); err != nil || start != ask.key.id.Start {
			a = reachAnswer{key: ask.key}
		}
		return a
	})
}

// obstacles lists what keeps the hook out of a process, by what it was started
// with. What may not be read is none.
func obstacles(proc string, id rss.ProcID, runDir string) (list []obstacle) {
	env, err := proctree.Environ(proc, id.PID, func(name string) bool { return name == loader.EnvDir || name == "PYTHONPATH" })
	if err != nil {
		return nil
	}
	hook := ""
	for dir := range strings.SplitSeq(env["PYTHONPATH"], ":") {
		if loader.IsHook(dir) {
			hook = dir
			break
		}
	}
	named := env[loader.EnvDir]
	switch {
	case named == "" && hook == "":
		list = append(list, cleaned)
	case named == "":
		list = append(list, obstacle{"RSSWARDEN_DIR is not in its environment", "pass RSSWARDEN_DIR on to it"})
	case hook == "":
		list = append(list, obstacle{
			"PYTHONPATH was set anew, without the hook's directory that stood first on it",
			"write PYTHONPATH=…:$PYTHONPATH where it is set",
		})
	}
	if ours, theirs := namespace(proc, "self"), namespace(proc, strconv.Itoa(id.PID)); ours != "" && theirs != "" && ours != theirs {
		list = append(list, obstacle{
			"it is in a PID namespace of its own, where the hook does nothing",
			"leave out what makes that namespace (of Apptainer --pid and --containall)",
		})
	}
	if named == "" {
		named = runDir
	}
	dirs := slices.DeleteFunc([]string{named, hook}, func(dir string) bool { return dir == "" || !hidden(proc, id.PID, dir) })
	if len(dirs) > 0 {
		for i, dir := range dirs {
			dirs[i] = text.Cut(text.Plain(dir), 200)
		}
		line := strings.Join(dirs, " and ")
		list = append(list, obstacle{"it does not see " + line, "have it see " + line + " under the same name (of Apptainer --bind)"})
	}
	if flag := ignores(proc, id.PID); flag != "" {
		list = append(list, obstacle{"it was started with " + flag, "leave out " + flag})
	}
	return list
}

// namespace names the PID namespace of a process, empty where it may not be known.
func namespace(proc, pid string) string {
	name, _ := os.Readlink(filepath.Join(proc, pid, "ns/pid"))
	return name
}

// hidden says that a process does not find a directory that is there.
func hidden(proc string, pid int, dir string) bool {
	root := filepath.Join(proc, strconv.Itoa(pid), "root")
	if _, err := os.Stat(root + "/"); err != nil {
		return false
	}
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(root, dir))
	return errors.Is(err, fs.ErrNotExist)
}

// ignores returns the option with which a Python was started that keeps it from
// reading its environment, or its site: -E, -I, -S. It is empty where there is none.
func ignores(proc string, pid int) string {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "cmdline"), procfile.Cmdline)
	args := strings.Split(string(b), "\x00")
	if err != nil || !strings.HasPrefix(filepath.Base(args[0]), "python") {
		return ""
	}
	for i := 1; i < len(args) && len(args[i]) > 1 && args[i][0] == '-' && args[i][1] != '-'; i++ {
	letters:
		for n, c := range args[i][1:] {
			switch c {
			case 'E', 'I', 'S':
				return "-" + string(c)
			case 'c', 'm':
				return ""
			case 'W', 'X': // with a value, here or in the next
				if n+2 == len(args[i]) {
					i++
				}
				break letters
			}
		}
	}
	return ""
}

// longestMaps bounds what is read of a process's mappings: twice the 65,530 that
// vm.max_map_count allows where nobody has raised it.
const longestMaps = 16 << 20

// hasTorch says whether a process has loaded PyTorch.
func hasTorch(proc string, pid int) bool {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "maps"))
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(io.LimitReader(f, longestMaps)); s.Scan(); {
		if bytes.Contains(s.Bytes(), []byte("/libtorch_")) {
			return true
		}
	}
	return false
}
