package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

const runUsage = programName + " run [OPTIONS] [--] COMMAND [ARG...]"

const runNotes = `SIZE as in sbatch --mem, or 90%. RULE: [LIMIT ]N%|free<SIZE|eta<DURATION:ACTION;
warn, trim, recycle, gc, signal=SIG, exec=COMMAND, requeue, stop.
`

func runCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:        "run",
		Category:    "Run",
		Usage:       "run a command and keep it under its limit",
		UsageText:   runUsage,
		Args:        true,
		Description: runNotes,
		Flags:       watchFlags(true),
		ArgsUsage: examples(
			"srun rsswarden run -- python train.py",
			"rsswarden run --limit 90% --at '95%:stop' -- python train.py",
		),
	}, func(c *cli.Context) (err error) {
		defer func() {
			// hold.Run takes up what fails in it: there is no command yet.
			if what := recover(); what != nil && c.NArg() > 0 {
				if hold.Woken() {
					err = fmt.Errorf("internal error: %v", what)
					return
				}
				if !hold.BySite() {
					fmt.Fprint(os.Stderr, p.line("", "warn", fmt.Sprintf("the command runs unwatched: internal error: %v", what), ""))
				}
				err = replace(p, c.Args().Slice())
			}
		}()
		fault.Point("run")
		if c.NArg() == 0 {
			return usagef("rsswarden run -- python train.py", "no command given")
		}
		if p.get("RSSWARDEN") == "off" {
			return replace(p, c.Args().Slice())
		}
		s, err := settingsOf(p, c)
		if err != nil {
			if hold.BySite() { // the user typed none of it, but perhaps a variable for another run
				return replace(p, c.Args().Slice())
			}
			return err
		}
		if hold.BySite() {
			s.StartedBySite()
		}
		_, inSlurm := slurm.FromEnv(p.lookup)
		s.Warnings = append(s.Warnings, deadRules(&s, inSlurm)...)
		s.Command = c.Args().Slice()
		if text := misplacedFlag(p.args, s.Command); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		err = start(p, s)
		var failed *failure
		if errors.As(err, &failed) {
			failed.format = s.LogFormat
		}
		return err
	})
}

// start runs the command and ends as the command ended, by the same signal too. It returns
// only if the command could not be started.
func start(p process, s settings.Settings) error {
	file, err := p.lookPath(s.Command[0])
	if err != nil {
		if dir := hold.RunDir(); dir != "" && !hold.Begun() {
			_ = loader.Remove(dir)
		}
		return notStarted(file, err)
	}
	if proctree.Self("/proc") != os.Getpid() {
		if !s.Quiet {
			fmt.Fprint(os.Stderr, p.line(s.LogFormat, "warn", "the command runs unwatched: "+otherPIDs+"; "+mountProc, ""))
		}
		return replace(p, s.Command)
	}
	if hold.Forked() && !hold.Begun() && served() {
		hold.Leave()
	}
	opt := holdOptions(p, &s)
	opt.Paths, opt.Args, opt.Env = p.candidates(s.Command[0]), s.Command, p.env
	// What slurmstepd sums is the watcher's to find out.
	_, inSlurm := slurm.FromEnv(p.lookup)
	opt.Subreaper = !inSlurm
	used := ""
	if s.Loader {
		prepared, err := prepare(loader.Options{Env: opt.Env, Name: runName(p), Dir: hold.RunDir()})
		if err != nil {
			s.Warnings = append(s.Warnings, "the loader hook is off: "+err.Error())
		} else {
			opt.Env, s.Dir = prepared.Env, prepared.Dir
			used = filepath.Dir(filepath.Dir(s.Dir))
			if prepared.Distrusted {
				s.Warnings = append(s.Warnings, fmt.Sprintf("the loader hook is used from %s, not from its usual place: %v", prepared.Hook, prepared.Passed))
			}
		}
	}
	s.Warnings = append(s.Warnings, runtimeUnused(p, used)...)
	if part := hold.Differs(opt); part != "" {
		s.Warnings = append(s.Warnings, "internal error: the command was started at once, but not as it is to be: "+part)
	}
	told := s
	told.Command = clipped(s.Command)
	tell.NameRun(&told.Run, p.lookup)
	opt.Setup = told.Encode()
	if hold.Forked() {
		link := hold.Start(opt)
		if link == nil {
			tidy(&s)
			hold.Leave()
		}
		return &asWatcher{link, told}
	}
	if hold.Woken() {
		return &asHolder{told}
	}
	opt.Trim = tracer(&s)
	st, err := hold.Run(opt)
	if err == nil {
		end(st, &s)
	}
	tidy(&s)
	return notStarted(s.Command[0], err)
}

// holdOptions are those that a holder needs once the command runs.
func holdOptions(p process, s *settings.Settings) hold.Options {
	opt := hold.Options{KeepFDs: inherited(s.Events), Flush: flushPatience, Watcher: []string{"/proc/self/exe", watcherCommand}}
	if s.Requeues() {
		opt.Flush = action.RequeueFlush
	}
	if !s.Quiet {
		// hold.Run replaces os.Stderr by a copy that survives a reader's end.
		opt.Log = func(text string) { fmt.Fprint(os.Stderr, p.line(s.LogFormat, "warn", text, "")) }
	}
	opt.Slim = func() { supervisor.Slim(func(file string) bool { return isLocal(file) }) }
	return opt
}

// tracer is the holder's, which may trace where Yama allows ancestors alone.
func tracer(s *settings.Settings) func(hold.TrimRequest) hold.TrimAnswer {
	if !s.Trim.Ptrace() {
		return nil
	}
	return supervisor.Hands()
}

// end ends this process as the command ended.
func end(st hold.Status, s *settings.Settings) {
	defer st.Die() // whatever fails
	tidy(s)
}

func tidy(s *settings.Settings) {
	fault.Point("tidy")
	removeRunDir(s)
	removeTextfile(s.Textfile) // the watcher may have been killed
}

// removeRunDir may fail: what is left is small, and the next run sweeps it.
func removeRunDir(s *settings.Settings) {
	if s.Dir != "" {
		_ = loader.Remove(s.Dir)
	}
}

// removeTextfile removes what a killed watcher has left. A directory that hangs must not
// delay the command's exit status.
func removeTextfile(dir string) {
	if dir == "" {
		return
	}
	q := ioRequest{What: ioRemove, Path: []byte(dir), Holder: os.Getpid()}
	_, _ = q.answer(isLocal(dir))
}

// runtimeUnused says why our files are not where the user's variables say, and where
// they are: used, or empty if unknown. `status` finds the ranks of a job only if all use
// the same place.
func runtimeUnused(p process, used string) (said []string) {
	places := []struct{ name, next string }{
		{loader.EnvRuntime, "the next of $TMPDIR and /tmp that is fit is"}, {"TMPDIR", "/tmp is"},
	}
	for _, at := range places {
		dir := p.get(at.name)
		if dir == "" {
			continue
		}
		var reason error
		switch {
		case !isLocal(dir):
			// Not looked into: a thread that waits for its server would keep the
			// holder, and so the command's status, from ending.
			if filepath.Clean(dir) == used {
				return said
			}
			reason = errors.New("it is not on a file system of this node alone")
		case doctor.LeadsTo(dir, used):
			return said
		default:
			reason = doctor.Unfit(dir)
			if used == "" && errors.Is(reason, doctor.ErrFit) {
				return said
			}
		}
		instead := at.next
		if used != "" {
			instead = used + " is"
		}
		said = append(said, fmt.Sprintf("%s=%s is not used, %s: %v", at.name, dir, instead, reason))
	}
	return said
}

// replace becomes the command, without reading or writing anything of ours. It returns
// only if the command could not be started.
func replace(p process, command []string) error {
	file, err := p.lookPath(command[0])
	if err == nil {
		err = hold.Exec(p.candidates(command[0]), command)
	}
	return notStarted(file, err)
}

// prepare is loader.Prepare, within bounds.
func prepare(opt loader.Options) (loader.Prepared, error) {
	q := ioRequest{What: ioPrepare, Path: []byte(opt.Dir), Env: []byte(strings.Join(loader.Asked(opt.Env), "\x00")), Run: opt.Name, Holder: cmp.Or(opt.Owner, hold.PID())}
	r, err := q.answer(isLocal(loader.Places(opt.Env)...))
	if err == nil {
		err = r.err()
	}
	if err != nil {
		return loader.Prepared{}, err
	}
	prepared := loader.Prepared{Dir: string(r.Dir), Hook: string(r.Hook)}
	if r.Passed != "" {
		prepared.Passed, prepared.Distrusted = errors.New(r.Passed), r.Distrust
	}
	prepared.Env = loader.Environ(opt.Env, prepared.Dir, prepared.Hook)
	return prepared, nil
}

// flushPatience is how long the holder waits for the watcher's last words.
const flushPatience = 2 * time.Second

// runName names the run directory: JOB.STEP.TASK under Slurm, else empty.
func runName(p process) string {
	if job, ok := slurm.FromEnv(p.lookup); ok {
		if b, err := procfile.Read("/proc/self/cgroup", procfile.Small); err == nil {
			job = job.InCgroup(b)
		}
		return fmt.Sprintf("%s.%s.%d", job.ID, job.StepID, job.Task)
	}
	return ""
}
