package workers

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

const (
	// torchLeast is the least memory that a process with PyTorch has; one that has less is
	// not looked into.
	torchLeast = 48 * rss.MiB
	// hookCheckEvery is how long a process without PyTorch is left alone at most: a large
	// program may import it late.
	hookCheckEvery = time.Minute
)

// hookCheck finds trainings that the loader hook does not reach: in a container that cleans
// the environment, hides our directories or has PID numbers of its own, or behind a script
// that sets PYTHONPATH. It would go unnoticed that their workers are neither trimmed nor
// replaced. A probe looks into a process: the kernel takes its mmap_lock for that, and that
// can hang.
type hookCheck struct {
	*probe.Reader[hookQuestion, hookAnswer]
	seen map[program]*hookChecked
	why  string // of the first that was found, in short
}

type hookChecked struct {
	since time.Duration // when it was first met
	next  time.Duration // when it is to be looked into (again)
	final bool
	told  bool
}

type hookQuestion struct {
	program
	dir string // the run directory of our own command
}

type hookAnswer struct {
	program
	obstacles []obstacle
	torch     bool // it has loaded PyTorch; looked for where there are obstacles alone
}

func newHookCheck(opt Options) hookCheck {
	return hookCheck{Reader: probe.New(nil, func(q hookQuestion) hookAnswer {
		fault.Point("reach")
		a := hookAnswer{program: q.program, obstacles: opt.obstacles(q.id, q.dir)}
		a.torch = len(a.obstacles) > 0 && hasTorch(opt.Proc, q.id.PID)
		// It may have taken long, and the PID may be another's by now.
		if start, err := proctree.StartTime(opt.Proc, q.id.PID); err != nil || start != q.id.Start {
			a = hookAnswer{program: q.program}
		}
		return a
	})}
}

// CheckHook has processes looked into that may train and said no hello, below the commands
// that were started with the hook, and returns one that it does not reach, if one was found.
// It looks again, ever more seldom, while a process has not loaded PyTorch. runDir is our own
// command's.
func (w *Workers) CheckHook(runDir string, commands []rss.ProcID) (found *Unhooked) {
	c, now := &w.hook, w.last.Mono
	if a, ok := c.Take(); ok {
		if e := c.seen[a.program]; e != nil {
			e.final, e.told = len(a.obstacles) == 0 || a.torch, a.torch
		}
		if a.torch {
			found = a.unhooked()
			if c.why == "" {
				c.why = fmt.Sprintf("process %d: %s", found.PID, found.Why)
			}
		}
	}
	alive := make(map[program]*hookChecked, len(c.seen))
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		key := programOf(p)
		e := c.seen[key]
		if e != nil {
			alive[key] = e // also while it waits for a disk: it was told of
		}
		if p.RSS < torchLeast || p.Role.IsWorker() || p.State == 'Z' || p.State == 'D' {
			continue
		}
		if e == nil {
			e = &hookChecked{since: now, next: now}
			alive[key] = e
		}
		if e.final || c.Busy() || now < e.next {
			continue
		}
		if e.final = w.excused(p, commands); e.final {
			continue
		}
		c.Ask(hookQuestion{key, runDir}, false)
		e.next = now + min((now-e.since)/2+time.Second, hookCheckEvery)
	}
	c.seen = alive
	return found
}

// excused says that a process, or one above it, said hello or was told of, or that
// none was to be expected: what it descends from has no rsswarden before it.
func (w *Workers) excused(p *rss.Proc, commands []rss.ProcID) bool {
	for _, p := range view.Lineage(w.last.Procs).Up(p.ID.PID) {
		if p == nil || w.trainers.Hello(p.ID) {
			return true
		}
		if e := w.hook.seen[programOf(p)]; e != nil && e.told {
			return true // which forked it
		}
		if slices.Contains(commands, p.ID) {
			return false
		}
	}
	return true
}

// NoHello is what keeps the hook out of a training, empty where nothing is known to.
func (w *Workers) NoHello() string { return w.hook.why }

// Unhooked is a training that the loader hook does not reach.
type Unhooked struct {
	PID   int
	Comm  string
	Why   string
	cures []string
}

func (a *hookAnswer) unhooked() *Unhooked {
	u := &Unhooked{PID: a.id.PID, Comm: a.comm}
	var what []string
	for _, o := range a.obstacles {
		what, u.cures = append(what, o.what), append(u.cures, o.cure)
	}
	u.Why = strings.Join(what, "; ")
	return u
}

// Line says so, with the cure. ptrace says that its workers are trimmed by ptrace.
func (u *Unhooked) Line(ptrace bool) string {
	follows, more := "no trim, no recycle", "; or --trim auto, which needs no hook"
	if ptrace {
		follows, more = "no recycle", ""
	}
	return fmt.Sprintf("the hook does not reach process %d (%s), so %s: %s; to fix it, %s%s",
		u.PID, text.Cut(text.Plain(u.Comm), 16), follows, u.Why, strings.Join(u.cures, ", and "), more)
}

type obstacle struct {
	what string // "RSSWARDEN_DIR is not in its environment"
	cure string // an order: "pass RSSWARDEN_DIR on"
}

// cleaned is an environment without anything of ours.
var cleaned = obstacle{
	"neither RSSWARDEN_DIR nor the hook's directory on PYTHONPATH is in its environment",
	"pass RSSWARDEN_DIR and PYTHONPATH on to it (of Apptainer --env, or no --cleanenv)",
}

// obstacles lists what keeps the hook out of a process, by what it was started
// with. What may not be read is none.
func (opt *Options) obstacles(id rss.ProcID, runDir string) (list []obstacle) {
	proc := opt.Proc
	env, err := proctree.Environ(proc, id.PID, func(name string) bool { return name == opt.EnvDir || name == "PYTHONPATH" })
	if err != nil {
		return nil
	}
	hook := ""
	for dir := range strings.SplitSeq(env["PYTHONPATH"], ":") {
		if opt.IsHook(dir) {
			hook = dir
			break
		}
	}
	named := env[opt.EnvDir]
	switch {
	case named == "" && hook == "":
		list = append(list, cleaned)
	case named == "":
		list = append(list, obstacle{"RSSWARDEN_DIR is not in its environment", "pass RSSWARDEN_DIR on to it"})
	case hook == "":
		list = append(list, obstacle{
			"PYTHONPATH was overwritten, without the hook's directory",
			"write PYTHONPATH=…:$PYTHONPATH where it is set",
		})
	}
	if ours, theirs := namespace(proc, "self"), namespace(proc, strconv.Itoa(id.PID)); ours != "" && theirs != "" && ours != theirs {
		list = append(list, obstacle{
			"it is in a PID namespace of its own, where the hook does nothing",
			"leave out what makes that namespace (of Apptainer --pid and --containall)",
		})
	}
	named = cmp.Or(named, runDir)
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

// longestMaps bounds what is read of a process's mappings: twice the 65,530 that are the
// default of vm.max_map_count.
const longestMaps = 16 << 20

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
