package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// answerMark begins each line that is for us: what the user's own sitecustomize
// or torch may print is not.
const answerMark = "rsswarden-doctor: "

// questions is what each Python is asked, in words that 2.7 knows too. What it
// says before it imports torch counts where it comes no further.
const questions = `
import json, sys

def say(**what):
    sys.stdout.write("\n` + answerMark + `" + json.dumps(what) + "\n")
    sys.stdout.flush()

flags = sys.flags
kind = getattr(sys, "implementation", None)
say(version="%d.%d.%d" % sys.version_info[:3], implementation=kind.name if kind else "cpython", executable=str(sys.executable),
    isolated=bool(getattr(flags, "isolated", 0)), no_environ=bool(flags.ignore_environment), no_site=bool(flags.no_site),
    armed=any(isinstance(f, type) and "_rsswarden" in vars(f) for f in sys.meta_path))
if sys.argv[1:] == ["torch"]:
    try:
        import torch.utils.data.dataloader
        say(torch=str(torch.__version__))
        try:
            from _rsswarden import patch
            say(trial=patch._torch.trial(), trial_why=patch._torch.why or "", trial_key=patch._torch.key or "")
        except Exception:
            pass
    except BaseException as error:
        text = "%s: %s" % (type(error).__name__, error)
        say(**{"missing" if getattr(error, "name", None) == "torch" else "broken": text})
`

// answer is what a Python said, its lines taken together.
type answer struct {
	Version, Implementation, Executable string
	Isolated                            bool
	NoEnviron                           bool `json:"no_environ"`
	NoSite                              bool `json:"no_site"`
	Armed                               bool
	Torch, Missing, Broken              string
	Trial                               event.Trial
	TrialWhy                            string `json:"trial_why"`
	TrialKey                            string `json:"trial_key"`
}

// torchRoom is what must be free below the limit for torch to be imported: Slurm
// and the kernel count that for the job, which is not to die of its doctor.
const torchRoom = rss.GiB

// loaders puts the hook in place as run does and asks each Python about it.
func (d *diagnosis) loaders(limits doctor.LimitFacts) []doctor.Check {
	f := doctor.PythonFacts{Asked: len(d.pythons) > 0}
	if !d.settings.Loader {
		f.NoLoader = "loader=off of " + d.origin("loader")
		return append(doctor.Pythons(f), doctor.RunDir(doctor.Place{Off: f.NoLoader}), doctor.HookDir(doctor.Place{Off: f.NoLoader}))
	}
	prepared, err := prepare(loader.Options{Env: d.p.env})
	f.NoHook = err
	if err == nil {
		d.mu.Lock()
		d.dir = prepared.Dir
		d.mu.Unlock()
		defer d.leave()
		f.Pythons = d.ask(prepared, limits)
	}
	return append(doctor.Pythons(f), d.runDir(prepared, err), d.hookDir(prepared, err))
}

// leave removes what was made. What would stay where this fails the next run
// sweeps.
func (d *diagnosis) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove()
}

func (d *diagnosis) remove() {
	if d.dir != "" {
		_ = loader.Remove(d.dir)
		d.dir = ""
	}
}

// ask asks the Pythons that were named, or those of PATH, one after the other.
func (d *diagnosis) ask(prepared loader.Prepared, limits doctor.LimitFacts) []doctor.Python {
	control, err := loader.Open(prepared.Dir)
	if err != nil {
		return []doctor.Python{{Err: err}}
	}
	defer control.Close()
	spared := ""
	if room, known := limits.Room(); known && room < torchRoom {
		spared = fmt.Sprintf("only %v is left below the limit", room)
	}
	var all []doctor.Python
	for _, one := range d.find() {
		if one.Err == nil {
			one.Patience, one.Spared = d.patience.String(), spared
			done := d.progress("asking " + one.Path)
			d.question(&one, prepared)
			hear(&one, control)
			done()
			d.verdict(&one, prepared)
		}
		same := slices.IndexFunc(all, func(p doctor.Python) bool { return sameFile(p.Executable, one.Executable) && p.Path != "" })
		if same >= 0 && !d.named() {
			all[same].Names = append(all[same].Names, one.Names...)
			continue
		}
		all = append(all, one)
	}
	return all
}

func (d *diagnosis) named() bool { return len(d.pythons) > 0 }

// find resolves what is to be asked. Two names for one file of one directory are
// one Python; links from elsewhere may be an environment of their own.
func (d *diagnosis) find() []doctor.Python {
	names := d.pythons
	if !d.named() {
		names = []string{"python", "python3"}
	}
	var all []doctor.Python
	for _, name := range names {
		path, err := d.p.lookPath(name)
		switch {
		case err != nil && !d.named() && errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			var said *startError
			err = notStarted(name, err)
			if errors.As(err, &said) {
				err = said.err
			}
			all = append(all, doctor.Python{Names: []string{name}, Err: err})
			continue
		}
		same := slices.IndexFunc(all, func(p doctor.Python) bool {
			return filepath.Dir(p.Path) == filepath.Dir(path) && sameFile(p.Path, path)
		})
		if same >= 0 && !d.named() {
			all[same].Names = append(all[same].Names, name)
			continue
		}
		all = append(all, doctor.Python{Names: []string{name}, Path: path, Unreadable: unix.Access(path, unix.R_OK) != nil})
	}
	return all
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// question starts a Python in the environment that run would give it.
func (d *diagnosis) question(one *doctor.Python, prepared loader.Prepared) {
	args := []string{"-c", questions}
	if one.Spared == "" {
		args = append(args, "torch")
	}
	var out, errs text.Bounded
	err := d.start(one.Path, args, d.patience, func(cmd *exec.Cmd) {
		cmd.Args[0], cmd.Env, cmd.Stdout, cmd.Stderr = one.Names[0], prepared.Env, &out, &errs
	})
	one.Late, one.Stderr = errors.Is(err, errLate), errs.LastLine()
	var exit *exec.ExitError
	if err != nil && !one.Late && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		one.Err = plain(err)
		return
	}
	var a answer
	for line := range strings.Lines(out.String()) {
		if text, ok := strings.CutPrefix(line, answerMark); ok && json.Unmarshal([]byte(text), &a) == nil {
			one.Answered = true
		}
	}
	one.Version, one.Implementation, one.Executable = a.Version, a.Implementation, a.Executable
	one.Isolated, one.NoEnviron, one.NoSite, one.Armed = a.Isolated, a.NoEnviron, a.NoSite, a.Armed
	one.Torch, one.Missing, one.Broken = a.Torch, a.Missing, a.Broken
	one.Trial, one.Why, one.Key = a.Trial, a.TrialWhy, a.TrialKey
	if one.Answered && one.Torch == "" && one.Missing == "" && one.Broken == "" && !one.Late && one.Spared == "" {
		one.Broken = "it ended while it imported it" // by a signal, or os._exit
		if exit != nil {
			one.Broken += ", by " + exit.String()
		}
	}
}

// hear takes the hook's own verdict, from what it wrote into the run directory.
func hear(one *doctor.Python, control *loader.Control) {
	for _, said := range control.Poll(true) {
		switch said.What {
		case event.LoaderHello:
			one.Hello = true
			one.Why = cmp.Or(one.Why, said.Reason)
		case event.LoaderOff:
			one.Off = said.Reason
		}
	}
}

// verdict looks up what came of an earlier trial with a torch that is not known, or makes
// one where that was asked for.
func (d *diagnosis) verdict(one *doctor.Python, prepared loader.Prepared) {
	if one.Trial != event.TrialWaiting {
		return
	}
	u, err := loader.ReadUntried(prepared.Dir, one.Key)
	if err != nil {
		one.Why = "a trial cannot be made: " + plain(err).Error()
		return
	}
	v, ok := loader.KeptVerdict(u, d.p.env)
	if d.tryTorch && (!ok || v.What == loader.VerdictFailed) {
		done := d.progress("trying torch " + one.Torch)
		v, err = loader.Try(context.Background(), u, d.p.env, d.startTrial)
		done()
		d.mu.Lock()
		d.child = 0
		d.mu.Unlock()
		if ok = v.What != ""; !ok {
			one.Why = plain(err).Error()
			return
		}
	}
	if d.tryTorch && ok && os.Geteuid() == 0 {
		if err := loader.KeepForAll(u, v); err != nil {
			fmt.Fprint(d.p.stderr, line("", "warning", oneLine(joined(err)), ""))
		}
	}
	switch {
	case !ok:
	case v.OK():
		one.Trial = event.TrialTried
	default:
		one.Trial, one.Why = event.TrialRefused, v.Why
	}
}

// startTrial starts a trial. A signal that ends doctor kills it.
func (d *diagnosis) startTrial(cmd *exec.Cmd) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		d.child = cmd.Process.Pid
	}
	return err
}

// progress shows on a terminal what takes seconds, for as long as it does.
func (d *diagnosis) progress(what string) (done func()) {
	if _, err := unix.IoctlGetTermios(int(d.p.stderr.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	fmt.Fprintf(d.p.stderr, "%s … ", oneLine(what))
	return func() { fmt.Fprint(d.p.stderr, "\r\x1b[K") }
}
