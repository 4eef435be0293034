package doctor

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
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Python is what one Python said when it was started as `run` starts it.
type Python struct {
	// Names are what it was found by ("python", "python3"), and Path is the file.
	Names []string
	Path  string
	// Err says why it was not found or not started.
	Err error
	// Unreadable says that the file may be executed and not read.
	Unreadable bool
	// Late says that it was killed because its time, Patience, was over.
	Late     bool
	Patience string
	// Stderr is the last line that it wrote there.
	Stderr string

	answer
	Answered bool   // it got as far as to give an answer
	Spared   string // why the import of torch was not tried
	// Hello says that the hook said hello from it, and Off why it switched itself off.
	Hello bool
	Off   string
}

type pythonFacts struct {
	// Asked says that the user named them. Else they are those of PATH, perhaps none of
	// the job's.
	Asked   bool
	Pythons []Python
	// NoLoader is who switched the hook off, and NoHook why it cannot be put in place.
	NoLoader string
	NoHook   error
}

const (
	without = "workers can be trimmed without it: rsswarden run --trim auto; pools that respawn are recycled by --worker-signal"
	nameOne = "activate the environment of the training first, or name its Python: rsswarden doctor -- PYTHON"
)

// pythonChecks says what the loader hook can do in each.
func pythonChecks(f pythonFacts) []Check {
	switch {
	case f.NoLoader != "":
		return []Check{{
			Name: NamePython, Status: Off, Found: "the loader hook is off", Source: f.NoLoader,
			Do: "leave the option loader at auto", part: "the loader hook is switched off by " + f.NoLoader,
		}}
	case f.NoHook != nil:
		return []Check{{
			Name: NamePython, Status: Off, Found: "the loader hook cannot be put in place: " + f.NoHook.Error(),
			Do: "see run-dir and hook-dir", part: "the loader hook cannot be put in place",
		}}
	case len(f.Pythons) == 0:
		return []Check{{
			Name: NamePython, Status: Off, Found: "neither python nor python3 is on PATH: nothing is known of a loader hook", Source: "PATH",
			Do: "name the Python of the training, where there is one: rsswarden doctor -- PYTHON", gain: "no Python was found",
		}}
	}
	checks, served, good, bad := f.decide()
	switch {
	case good >= 0 && f.Pythons[good].Torch != "":
		checks[good].gain = fmt.Sprintf("the loader hook works with torch %s", f.Pythons[good].Torch)
	case good >= 0:
		checks[good].gain = "the loader hook is loaded, in no Python with torch so far"
	}
	for i := range checks {
		if i == bad || f.Asked && !served[i] {
			checks[i].part = checks[i].Found
		}
	}
	return checks
}

// decide checks each Python, and says which of them decide about the job, -1 for none: good
// can be served, bad is the first that cannot. Where the user named none one of PATH is enough,
// with torch if any has it.
func (f *pythonFacts) decide() (checks []Check, served []bool, good, bad int) {
	torches := slices.ContainsFunc(f.Pythons, func(p Python) bool { return p.hasTorch() })
	good, bad = -1, -1
	for i := range f.Pythons {
		p := &f.Pythons[i]
		c, ok := p.check()
		checks, served = append(checks, c), append(served, ok)
		switch {
		case ok && (good < 0 || p.Torch != "") && (!torches || f.Asked || p.hasTorch()):
			good = i
		case !ok && (bad < 0 || !f.Asked && p.hasTorch() && !f.Pythons[bad].hasTorch()):
			bad = i
		}
	}
	if good >= 0 && !f.Asked {
		bad = -1
	}
	return checks, served, good, bad
}

// unable says why the hook can do nothing, or cannot recycle, empty where it can or that is
// not known.
func (f *pythonFacts) unable() (hook, recycle string) {
	var p *Python
	if _, _, _, bad := f.decide(); bad >= 0 {
		p = &f.Pythons[bad]
	}
	switch {
	case f.NoLoader != "":
		hook = "the loader hook is off"
	case f.NoHook != nil:
		hook = "the loader hook cannot be put in place"
	case p == nil:
	case !p.Armed, p.Torch != "" && (!p.Hello || p.Off != ""):
		hook = "this Python does not load the hook"
	case p.Why != "":
		recycle = "the hook cannot recycle with this PyTorch"
	case p.Trial == event.TrialWaiting:
		recycle = "not before a trial with this PyTorch"
	}
	return hook, cmp.Or(recycle, hook)
}

func (p *Python) hasTorch() bool { return p.Torch != "" || p.Broken != "" }

// check says what the hook can do in one, and whether it can do all: served.
func (p *Python) check() (c Check, served bool) {
	c = Check{Name: NamePython, Source: "started with the hook, as run does"}
	head := strings.Join(p.Names, ", ")
	if p.Path != "" && head != p.Path {
		head += " = " + p.Path
	}
	say := func(status Status, do, format string, args ...any) {
		c = c.as(status, do, "%s: %s", head, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Err != nil:
		c.Source = ""
		say(Off, "name a Python that is there: rsswarden doctor -- PYTHON", "%v", p.Err)
		return c, false
	case !p.Answered && p.Late:
		say(Off, "see why it hangs; where its files lie on a slow file system, ask again, or with --timeout 2m", "did not answer within %s and was killed", p.Patience)
		return c, false
	case !p.Answered:
		say(Off, nameOne, "not a Python, or it cannot start%s", aside(p.Stderr))
		return c, false
	}
	head += fmt.Sprintf(", %s %s", language(p.Implementation), p.Version)
	switch {
	case !since38(p.Version) || p.Implementation != "cpython":
		say(Off, without, "the hook does nothing there, it needs CPython 3.8 or newer")
	case p.Isolated || p.NoEnviron:
		flag := "-E"
		if p.Isolated {
			flag = "-I"
		}
		say(Off, "start the training without "+flag+"; "+without, "is started with %s and ignores PYTHONPATH, by which the hook comes", flag)
	case p.NoSite:
		say(Off, "start the training without -S; "+without, "is started with -S and imports no sitecustomize, by which the hook comes")
	case !p.Armed:
		say(Off, "have the wrapper keep both; "+without, "the hook was not loaded: something between rsswarden and this Python takes PYTHONPATH or RSSWARDEN_DIR away")
	default:
		served = p.loaders(say)
	}
	if p.Unreadable {
		c.Found += "; its file may not be read by you, so that its processes are not dumpable: PSS and ptrace are denied"
		if c.Status == OK {
			c.Status = Limited
		}
	}
	return c, served
}

// loaders judges a Python in which the hook is in place.
func (p *Python) loaders(say func(status Status, do, format string, args ...any)) (served bool) {
	switch {
	case p.Spared != "":
		say(Limited, "ask where there is more room, such as at the start of the job", "the hook is loaded; torch was not imported: %s", p.Spared)
	case p.Torch == "" && p.Late:
		say(Limited, "ask again now that its files have been read, or with --timeout 2m", "the hook is loaded; importing torch took longer than %s, and it was killed", p.Patience)
	case p.Missing != "":
		say(Limited, nameOne, "the hook is loaded; it has no torch (%s)", p.Missing)
		return true
	case p.Torch == "":
		say(Limited, "have it import torch without rsswarden first: "+p.Path+" -c 'import torch.utils.data'", "the hook is loaded; torch cannot be imported%s", aside(p.Broken))
	case !p.Hello:
		say(Off, without, "torch %s, and the hook did not say hello%s", p.Torch, aside(p.Off))
	case p.Off != "":
		say(Off, without, "torch %s; the hook has switched itself off: %s", p.Torch, p.Off)
	case p.Why != "":
		do := "nothing where trimming is enough; else a version of torch that the README names as tested"
		if p.Trial == event.TrialRefused && p.Key != "" {
			do += "; rsswarden doctor --torch -- " + p.Path + " repeats a trial that could not be made"
		}
		say(Limited, do, "torch %s: loader workers are trimmed, not recycled: %s", p.Torch, p.Why)
	case p.Trial == event.TrialWaiting:
		say(Limited, "rsswarden doctor --torch -- "+p.Path+" makes the trial, in seconds; run makes it at its first start where there is room",
			"torch %s has not been tried here: loader workers are trimmed, and recycled once a trial went well", p.Torch)
	default:
		how := "known"
		if p.Trial == event.TrialTried {
			how = "tried here"
		}
		if p.Unrevived != "" {
			how += "; not replaced where they die: " + p.Unrevived
		}
		say(OK, "", "torch %s: loader workers are trimmed and recycled (%s)", p.Torch, how)
		return true
	}
	return false
}

func language(implementation string) string {
	if implementation == "" || implementation == "cpython" {
		return "Python"
	}
	return implementation
}

func since38(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 3 || major == 3 && minor >= 8
}

// answerMark begins our lines; the user's sitecustomize or torch may print others.
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
	Version, Implementation string
	Executable              string // sys.executable
	Isolated                bool   // -I
	NoEnviron               bool   `json:"no_environ"` // -E
	NoSite                  bool   `json:"no_site"`    // -S
	Armed                   bool   // our sitecustomize was loaded
	// Torch is the version of torch; if it is empty Missing or Broken is why it could not
	// be imported.
	Torch, Missing, Broken string
	Trial                  event.Trial // whether recycling was tried with its torch
	Why                    string      `json:"trial_why"` // the hook does not recycle there
	Unrevived              string      `json:"-"`         // the trial found that it must not replace workers that die
	Key                    string      `json:"trial_key"` // names the text of torch
}

// torchRoom must be free below the limit to import torch, which counts for the job.
const torchRoom = rss.GiB

// loaders puts the hook in place as run does and asks each Python about it.
func (d *prober) loaders() []Check {
	f := pythonFacts{Asked: len(d.Pythons) > 0}
	if !d.Loader {
		f.NoLoader = "loader=off of " + d.Origin("loader")
		d.unable = unable(&d.Policy, d.ptraceWorks, &f)
		return append(pythonChecks(f), runDir.judge(Place{Off: f.NoLoader}), hookDir.judge(Place{Off: f.NoLoader}))
	}
	prepared, err := d.Prepare()
	f.NoHook = err
	if err == nil {
		d.mu.Lock()
		d.dir = prepared.Dir
		d.mu.Unlock()
		defer d.leave()
		f.Pythons = d.ask(prepared)
	}
	d.unable = unable(&d.Policy, d.ptraceWorks, &f)
	return append(pythonChecks(f), d.runDir(prepared, err), d.hookDir(prepared, err))
}

// unable says why an action that frees memory cannot be carried out here, with an empty text
// where it can or that is not known.
func unable(s *settings.Policy, traces bool, f *pythonFacts) map[event.Action]string {
	hook, recycle := f.unable()
	trim := hook
	switch {
	case s.Trim.Ptrace() && traces:
		trim = ""
	case s.Trim == settings.TrimOff:
		trim = "--trim is off"
	case !s.Trim.Hook():
		trim = "ptrace does not work here"
	}
	all := map[event.Action]string{}
	for _, a := range event.Actions {
		switch r := a.Row(); {
		case !a.Frees():
		case s.DryRun:
			all[a] = "--dry-run only says what would be done"
		case r.Trims:
			all[a] = trim
		case r.Single:
			all[a] = recycle
		default:
			all[a] = hook
		}
	}
	return all
}

// ask asks the Pythons that were named, or those of PATH, one after the other.
func (d *prober) ask(prepared loader.Prepared) []Python {
	control, err := loader.Open(prepared.Dir)
	if err != nil {
		return []Python{{Err: err}}
	}
	defer control.Close()
	spared := ""
	if d.roomKnown && d.room < torchRoom {
		spared = fmt.Sprintf("only %v is left below the limit", d.room)
	}
	var all []Python
	for _, one := range d.find() {
		if one.Err == nil {
			one.Patience, one.Spared = d.Patience.String(), spared
			done := d.progress("asking " + one.Path)
			d.question(&one, prepared)
			readHookVerdict(&one, control)
			done()
			d.verdict(&one, prepared)
		}
		same := slices.IndexFunc(all, func(p Python) bool { return sameFile(p.Executable, one.Executable) && p.Path != "" })
		if same >= 0 && !d.named() {
			all[same].Names = append(all[same].Names, one.Names...)
			continue
		}
		all = append(all, one)
	}
	return all
}

func (d *prober) named() bool { return len(d.Pythons) > 0 }

// find resolves the names. Two names for one file of one directory are one Python; links
// from elsewhere may be an environment of their own.
func (d *prober) find() []Python {
	names := d.Pythons
	if !d.named() {
		names = []string{"python", "python3"}
	}
	var all []Python
	for _, name := range names {
		path, err := d.LookPath(name)
		switch {
		case err != nil && !d.named() && errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			all = append(all, Python{Names: []string{name}, Err: err})
			continue
		}
		same := slices.IndexFunc(all, func(p Python) bool {
			return filepath.Dir(p.Path) == filepath.Dir(path) && sameFile(p.Path, path)
		})
		if same >= 0 && !d.named() {
			all[same].Names = append(all[same].Names, name)
			continue
		}
		all = append(all, Python{Names: []string{name}, Path: path, Unreadable: unix.Access(path, unix.R_OK) != nil})
	}
	return all
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// question starts a Python in the environment that run would give it.
func (d *prober) question(one *Python, prepared loader.Prepared) {
	args := []string{"-c", questions}
	if one.Spared == "" {
		args = append(args, "torch")
	}
	var out, errs text.Bounded
	err := d.start(one.Path, args, d.Patience, func(cmd *exec.Cmd) {
		cmd.Args[0], cmd.Env, cmd.Stdout, cmd.Stderr = one.Names[0], prepared.Env, &out, &errs
	})
	one.Late, one.Stderr = errors.Is(err, errLate), errs.LastLine()
	var exit *exec.ExitError
	if err != nil && !one.Late && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		one.Err = errnoOf(err)
		return
	}
	for line := range strings.Lines(out.String()) {
		if text, ok := strings.CutPrefix(line, answerMark); ok && json.Unmarshal([]byte(text), &one.answer) == nil {
			one.Answered = true
		}
	}
	if one.Answered && one.Torch == "" && one.Missing == "" && one.Broken == "" && !one.Late && one.Spared == "" {
		one.Broken = "it ended while it imported it" // by a signal, or os._exit
		if exit != nil {
			one.Broken += ", by " + exit.String()
		}
	}
}

// readHookVerdict takes the hook's own verdict, from what it wrote into the run directory.
func readHookVerdict(one *Python, control *loader.Control) {
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

// verdict looks up an earlier trial with an unknown torch, or makes one if that was
// asked for.
func (d *prober) verdict(one *Python, prepared loader.Prepared) {
	if one.Trial != event.TrialWaiting {
		return
	}
	u, err := loader.ReadUntried(prepared.Dir, one.Key)
	if err != nil {
		one.Why = "a trial cannot be made: " + errnoOf(err).Error()
		return
	}
	v, ok := loader.KeptVerdict(u, d.Environ)
	if d.TryTorch && (!ok || v.What == loader.VerdictFailed) {
		done := d.progress("trying torch " + one.Torch)
		v, err = loader.Try(context.Background(), u, d.Environ, d.startTrial)
		done()
		d.mu.Lock()
		d.child = 0
		d.mu.Unlock()
		if ok = v.What != ""; !ok {
			one.Why = errnoOf(err).Error()
			return
		}
	}
	if d.TryTorch && ok && os.Geteuid() == 0 {
		if err := loader.KeepForAll(u, v); err != nil {
			d.Warn(text.Plain(strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
	}
	switch {
	case !ok:
	case v.OK():
		one.Trial, one.Unrevived = event.TrialTried, v.Unrevived
	default:
		one.Trial, one.Why = event.TrialRefused, v.Why
	}
}

// startTrial starts a trial. A signal that ends doctor kills it.
func (d *prober) startTrial(cmd *exec.Cmd) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		d.child = cmd.Process.Pid
	}
	return err
}
