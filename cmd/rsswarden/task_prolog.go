package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor"
	attachment "github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

const prologCommand = "task-prolog"

func taskPrologCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      prologCommand,
		Usage:     "start a watcher beside a Slurm task, from TaskProlog",
		UsageText: "rsswarden task-prolog [OPTIONS]",
		Description: "For the script that TaskProlog of slurm.conf names. It starts a watcher beside\n" +
			"the task and prints export lines for the task's environment. The watcher acts by\n" +
			"the ladder of run, as a run that the site started. Where the task cannot be\n" +
			"watched nothing is printed, and the task runs bare: rsswarden doctor in the job\n" +
			"says why. As TaskEpilog the same script waits until that watcher has written the\n" +
			"end, 2 seconds at most. Exit status: 0.\n",
		Flags: watchFlags(true),
		ArgsUsage: examples(
			"rsswarden task-prolog 2>/dev/null",
			"rsswarden task-prolog --at '90%:recycle' 2>/dev/null",
		),
	}, func(c *cli.Context) error {
		defer func() { _ = recover() }() // the task runs bare
		if lines, err := beginBeside(p, c); err == nil {
			_, _ = p.stdout.WriteString(lines)
		}
		return nil
	})
}

// Bounds of a watcher beside a task, which Slurm may count as the job's.
const (
	besideLeast   = rss.GiB // that the step has on the node for each task
	besideMost    = 64      // tasks on the node
	besideUnknown = 16      // … where the step's memory is not known
)

// whyBare says why a task gets no watcher beside it; nil where it may have one. resident is its
// soft RLIMIT_RSS, which slurmstepd sets after TaskProlog.
func whyBare(lookup func(string) (string, bool), resident uint64) error {
	get := func(name string) string { v, _ := lookup(name); return v }
	job, in := slurm.FromEnv(lookup)
	tasks := slurm.TasksHere(lookup)
	mem, known := slurm.StepLimit(lookup, resident)
	each := rss.Bytes(mem.Bytes) / rss.Bytes(max(tasks, 1))
	switch {
	case get("RSSWARDEN") == "off":
		return errors.New("RSSWARDEN=off is in the environment")
	case !in || job.StepID == "" || job.StepID == "extern":
		return errors.New("this is no task of Slurm's")
	case get("SLURM_CONTAINER")+get("SLURM_CONTAINER_ID") != "":
		return errors.New("it is in a container")
	case tasks == 0:
		return errors.New("the number of its step's tasks on this node is not known")
	case tasks > besideMost, !known && tasks > besideUnknown:
		return fmt.Errorf("its step has %d tasks on this node", tasks)
	case known && each < besideLeast:
		return fmt.Errorf("its step has %v for each task, watched are tasks with %v or more", each, rss.Bytes(besideLeast))
	}
	return nil
}

// task is what a watcher beside a task reads from its standard input.
type task struct {
	ID       rss.ProcID
	Settings json.RawMessage
}

// taskCommand is that watcher. Not for users.
const taskCommand = "watch-task"

// maxExports bounds what slurmstepd is given to read: it keeps 4 KiB of it in some versions.
const maxExports = 3 << 10

// beginBeside starts a watcher beside the task whose prolog this is, and returns the export lines
// by which the task's Pythons say hello to it.
func beginBeside(p process, c *cli.Context) (lines string, err error) {
	if err := whyBare(p.lookup, 0); err != nil {
		return "", err
	}
	pid, err := strconv.Atoi(p.get("SLURM_TASK_PID"))
	if err != nil || pid <= 1 {
		return "", errors.New("SLURM_TASK_PID is no process")
	}
	if proctree.Self("/proc") != os.Getpid() {
		return "", errors.New(otherPIDs)
	}
	start, err := proctree.StartTime("/proc", pid)
	if err != nil {
		return "", err
	}
	s, err := settingsOf(p, c)
	if err != nil {
		return "", err
	}
	s.StartedBySite()

	// What slurmstepd left open is not to be held open by who lives on.
	if err := store.CloseOnExec(); err != nil {
		return "", err
	}
	watcher := exec.Command("/proc/self/exe", taskCommand)
	watcher.Env = besideEnv(p.env)
	// slurmstepd kills the group of its prolog. Start returns when the watcher has left it.
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := watcher.StdinPipe()
	if err == nil {
		err = watcher.Start()
	}
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, pipe.Close()); err != nil { // it reads nothing, or half of it, and ends
			lines = ""
			if s.Dir != "" {
				_ = loader.Remove(s.Dir)
			}
		}
	}()
	if s.Loader {
		prepared, err := prepare(loader.Options{Env: p.env, Name: runName(p), Owner: watcher.Process.Pid})
		if err != nil {
			s.Warnings = append(s.Warnings, "the loader hook is off: "+err.Error())
		} else {
			path, _ := p.lookup("PYTHONPATH")
			s.Dir, lines = prepared.Dir, exports(prepared, path)
		}
	}
	if len(lines) > maxExports || strings.Count(lines, "\n") > 2 {
		return "", errors.New("PYTHONPATH is too long, or has several lines")
	}
	told, err := json.Marshal(task{rss.ProcID{PID: pid, Start: start}, s.Encode()})
	if err == nil {
		_, err = pipe.Write(told)
	}
	return lines, err
}

// exports are lines for slurmstepd. A hook that is in front already, of the batch script's
// watcher, is not put there again.
func exports(of loader.Prepared, path string) string {
	switch {
	case path == "":
		path = of.Hook
	case path != of.Hook && !strings.HasPrefix(path, of.Hook+":"):
		path = of.Hook + ":" + path
	}
	return "export PYTHONPATH=" + path + "\nexport " + loader.EnvDir + "=" + of.Dir + "\n"
}

// besideEnv is the task's environment without what would steer a Go runtime.
func besideEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"}, name)
	})
}

// waitBeside returns when the watcher beside a task that has ended has ended too: after its
// TaskEpilog slurmstepd kills what is left of the step. The tasks' epilogs run one after the other.
func waitBeside(p process) int {
	if whyBare(p.lookup, 0) != nil {
		return exitOK
	}
	task := func(lookup func(string) (string, bool)) [3]string {
		j, _ := slurm.FromEnv(lookup)
		return [3]string{j.ID, j.StepID, strconv.Itoa(j.Task)}
	}
	patience := min(2*time.Second, 16*time.Second/time.Duration(slurm.TasksHere(p.lookup)))
	within(patience, func() (_ struct{}) {
		for _, pid := range ownProcesses() {
			line, _ := procfile.Read(fmt.Sprintf("/proc/%d/cmdline", pid), procfile.Cmdline)
			if string(line) != "/proc/self/exe\x00"+taskCommand+"\x00" {
				continue
			}
			start, err := proctree.StartTime("/proc", pid)
			if err != nil {
				continue
			}
			env, err := proctree.Environ("/proc", pid, func(name string) bool { return strings.HasPrefix(name, "SLURM_") })
			of := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			if err == nil && task(of) == task(p.lookup) {
				proctree.Expect("/proc", rss.ProcID{PID: pid, Start: start}).Wait(patience)
			}
		}
		return
	})
	return exitOK
}

// watchTask is the watcher beside a task. Its exit status is not used.
func watchTask(p process) int {
	var t task
	told, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
	if err == nil {
		err = json.Unmarshal(told, &t)
	}
	var s settings.Settings
	if err == nil {
		s, err = settings.Decode(t.Settings)
	}
	if err != nil {
		return fail(p, usagef(programName+" task-prolog starts it where it is needed", "%s is not for use by hand: %v", taskCommand, err))
	}
	// scancel may signal all processes of a step. Who catches a signal leaves it as it is for the
	// programs that it starts.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE)
	defer removeRunDir(&s)
	if !executed(t.ID) || whyBare(p.lookup, residentLimit(t.ID.PID)) != nil {
		return exitOK
	}
	s.Command = commandLine(t.ID.PID)
	tell.NameRun(&s.Run, p.lookup)
	stderr := stderrOf(t.ID.PID)
	p.color = &s.Color
	log, closeLog := newLog(stderr, styleOf(p, stderr), s.Log)
	func() {
		defer func() { _ = recover() }() // the task runs on, unwatched
		supervisor.Watch(supervisor.Options{
			Settings: s, Link: attachment.Beside("/proc", t.ID, os.Getpid()), Proc: "/proc", Sys: "/sys", Self: os.Getpid(),
			Lookup: p.lookup, Log: log, Able: attachment.FromBeside(),
		})
	}()
	closeLog(500 * time.Millisecond)
	return exitOK
}

// executed waits until the fork of slurmstepd has become the user's command; false where it has
// ended before. The right to read its links comes a moment after the program.
func executed(id rss.ProcID) bool {
	for pause, links := 2*time.Millisecond, 20; ; pause = min(2*pause, 100*time.Millisecond) {
		i, err := proctree.Identify("/proc", id.PID)
		if err != nil || i.ID != id || i.Ended() {
			return false
		}
		if !i.Forked {
			_, err = os.Readlink(filepath.Join("/proc", strconv.Itoa(id.PID), "exe"))
			if pause = 2 * time.Millisecond; err == nil || links == 0 { // a program that may only be executed never shows them
				return true
			}
			links--
		}
		time.Sleep(pause)
	}
}

func residentLimit(pid int) uint64 {
	limit, err := proctree.ResidentLimit("/proc", pid)
	if err != nil {
		return 0
	}
	return limit
}

// stderrOf is the standard error of a task. A pipe is slurmstepd's, so it cannot be opened by its
// name. Where neither works nothing is written there, and the record has it.
func stderrOf(pid int) *os.File {
	const fd = 2
	if process, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(process)
		if theirs, err := unix.PidfdGetfd(process, fd, 0); err == nil {
			return os.NewFile(uintptr(theirs), "stderr of the task")
		}
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_WRONLY|os.O_APPEND|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return os.Stderr // /dev/null
	}
	return f
}
