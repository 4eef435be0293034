package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

func runCommand(p process, status *int) *cli.Command {
	return &cli.Command{
		Name:            "run",
		Usage:           "run COMMAND inside the memory limit that applies here",
		UsageText:       "rsswarden run [OPTIONS] [--] COMMAND [ARG...]",
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description: "SIZE is read as sbatch reads --mem: 3000 and 3000M are MiB, 3G is GiB; 80% is of the limit found.\n" +
			"RULE is [LIMIT ]WHEN:ACTION, e.g. '85%:trim', 'slurm free<500M:recycle', 'eta<10m:warn'.\n" +
			"Each option may also be set as RSSWARDEN_NAME in the environment, e.g. RSSWARDEN_LIMIT=3G.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "limit", Usage: "keep the tree below `SIZE`, beside the limits found"},
			&cli.StringFlag{Name: "accounting", Value: "auto", Usage: "how --limit adds memory up: `auto`, rss, pss, noshared or cgroup"},
			&cli.StringSliceFlag{Name: "at", Usage: "add `RULE` to the ladder (repeatable); --at none first clears it"},
			&cli.BoolFlag{Name: "dry-run", Usage: "decide and say so, do nothing"},
			&cli.StringFlag{Name: "interval", Value: "1s", Usage: "longest pause between two looks, a `DURATION`"},
			&cli.StringFlag{Name: "events", Usage: "append every event to `FILE` as JSON lines"},
			&cli.StringFlag{Name: "loader", Value: "auto", Usage: "`auto` talks to PyTorch loaders through a hook, off does not"},
			&cli.StringFlag{Name: "trim", Value: "hook", Usage: "how workers drop mapped pages: `hook` or off"},
			&cli.StringFlag{Name: "worker-signal", Usage: "recycle workers that their parent respawns by sending `SIG` (with --worker-match)"},
			&cli.StringFlag{Name: "worker-match", Usage: "which processes those are: `REGEXP` over the command line"},
			&cli.StringFlag{Name: "stop-status", Value: "137", Usage: "exit status when a stop rule ended the command"},
			&cli.StringFlag{Name: "grace", Value: "30s", Usage: "time between TERM and KILL when a stop rule fires, a `DURATION`"},
			&cli.BoolFlag{Name: "quiet", Usage: "say nothing on stderr"},
			&cli.StringFlag{Name: "log-format", Value: "console", Usage: "`console` or json"},
		}, helpFlag()),
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return cli.ShowSubcommandHelp(c)
			}
			s, err := settings(p, c)
			if err != nil {
				return err
			}
			*status, err = start(p, s)
			return err
		},
	}
}

// settings turns options and environment into checked settings.
func settings(p process, c *cli.Context) (supervisor.Settings, error) {
	s := supervisor.Settings{Command: c.Args().Slice(), Version: version}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if name == "help" {
			continue
		}
		origin := "default"
		variable := "RSSWARDEN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if c.IsSet(name) {
			origin = "flag"
		} else if v := p.get(variable); v != "" {
			if err := c.Set(name, v); err != nil {
				return s, usagef("unset it or set it right", "%s=%s: %v", variable, v, err)
			}
			origin = "environment"
		}
		s.Origins = append(s.Origins, event.Setting{Name: name, Value: valueOf(c, name), Origin: origin})
	}
	if len(s.Command) == 0 {
		return s, usagef("rsswarden run -- python train.py", "no command given")
	}
	s.DryRun, s.Quiet = c.Bool("dry-run"), c.Bool("quiet")
	s.Events = c.String("events")

	var err error
	if v := c.String("limit"); v != "" {
		if s.Limit, s.LimitShare, err = parseLimit(v); err != nil {
			return s, err
		}
	}
	if s.Accounting, err = oneOf[event.Accounting](c, "accounting", "auto", "rss", "pss", "noshared", "cgroup"); err != nil {
		return s, err
	}
	trim, err := oneOf[string](c, "trim", "hook", "off")
	if err != nil {
		return s, err
	}
	s.Trim = trim == "hook"
	if s.LogFormat, err = oneOf[string](c, "log-format", "console", "json"); err != nil {
		return s, err
	}
	hook, err := oneOf[string](c, "loader", "auto", "off")
	if err != nil {
		return s, err
	}
	s.Loader = hook == "auto"
	if s.Interval, err = duration(c, "interval", 2*time.Millisecond, time.Hour); err != nil {
		return s, err
	}
	if s.Grace, err = duration(c, "grace", 0, 24*time.Hour); err != nil {
		return s, err
	}
	if s.StopStatus, err = strconv.Atoi(c.String("stop-status")); err != nil || s.StopStatus < 0 || s.StopStatus > 255 {
		return s, usagef("give a number from 0 to 255, e.g. --stop-status 85", "--stop-status %q is not an exit status", c.String("stop-status"))
	}
	if s.Rules, err = ladder(c.StringSlice("at")); err != nil {
		return s, err
	}
	return s, workerOptions(c, &s)
}

func valueOf(c *cli.Context, name string) string {
	if list, ok := c.Value(name).(cli.StringSlice); ok {
		return strings.Join(list.Value(), " ")
	}
	return fmt.Sprint(c.Value(name))
}

func workerOptions(c *cli.Context, s *supervisor.Settings) error {
	sig, match := c.String("worker-signal"), c.String("worker-match")
	if (sig == "") != (match == "") {
		return usagef("rsswarden run --worker-signal TERM --worker-match 'my_pool worker' -- COMMAND",
			"--worker-signal and --worker-match go together")
	}
	if sig == "" {
		return nil
	}
	n, err := policy.ParseSignal(sig)
	if err != nil {
		return usagef("name a signal, e.g. --worker-signal TERM", "--worker-signal: %v", err)
	}
	if _, err := regexp.Compile(match); err != nil {
		return usagef("see https://pkg.go.dev/regexp/syntax, e.g. --worker-match 'my_pool worker'", "--worker-match: %v", err)
	}
	s.WorkerSignal, s.WorkerMatch = int(n), match
	return nil
}

func parseLimit(v string) (rss.Bytes, float64, error) {
	const hint = "give a size as in sbatch --mem, e.g. --limit 3G or --limit 90%"
	if share, ok := strings.CutSuffix(v, "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(f > 0 && f <= 100) {
			return 0, 0, usagef(hint, "--limit %q is not a share of a limit", v)
		}
		return 0, f / 100, nil
	}
	b, err := rss.ParseBytes(v)
	if err != nil || b == 0 {
		return 0, 0, usagef(hint, "--limit %q is not a size", v)
	}
	return b, 0, nil
}

func oneOf[T ~string](c *cli.Context, name string, values ...string) (T, error) {
	v := c.String(name)
	for _, want := range values {
		if v == want {
			return T(v), nil
		}
	}
	last := len(values) - 1
	return "", usagef("rsswarden "+c.Command.Name+" --help lists the options",
		"--%s %q is none of %s and %s", name, v, strings.Join(values[:last], ", "), values[last])
}

func duration(c *cli.Context, name string, least, most time.Duration) (time.Duration, error) {
	v := c.String(name)
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, usagef("give a number with a unit, e.g. --"+name+" 500ms", "--%s %q is not a duration", name, v)
	}
	if d < least || d > most {
		return 0, usagef("give a duration from "+least.String()+" to "+most.String(), "--%s %s is out of range", name, v)
	}
	return d, nil
}

// ladder returns the rules as text: the defaults and what --at adds.
func ladder(at []string) ([]string, error) {
	rules, err := policy.Ladder(at)
	if err != nil {
		hint := "a rule looks like 85%:trim"
		var bad *policy.RuleError
		if errors.As(err, &bad) {
			hint = bad.Hint
		}
		return nil, usagef(hint, "--at: %v", err)
	}
	texts := make([]string, len(rules))
	for i, r := range rules {
		if !policy.Supported(r.Action) {
			return nil, usagef("use warn, trim, recycle or stop", "--at %q: the action %s is not there yet", r, r.Action)
		}
		texts[i] = r.String()
	}
	return texts, nil
}

// start runs the command and returns the exit status; where the command died
// by a signal it does not return, and dies by the same.
func start(p process, s supervisor.Settings) (int, error) {
	file, err := lookPath(s.Command[0], p.get("PATH"))
	if err != nil {
		return 0, notStarted(s.Command[0], err)
	}
	if p.get("RSSWARDEN") == "off" {
		return 0, notStarted(s.Command[0], hold.Exec(file, s.Command, p.env))
	}
	opt := hold.Options{Path: file, Args: s.Command, Env: p.env, KeepFDs: inherited(s.Events), Flush: flushPatience}
	if s.Loader {
		prepared, err := prepare(loader.Options{Env: p.env, Name: runName(p)})
		if err != nil {
			s.Warnings = append(s.Warnings, "loaders are not talked to: "+err.Error())
		} else {
			opt.Env, s.Dir = prepared.Env, prepared.Dir
		}
	}
	if !s.Quiet {
		// hold.Run replaces os.Stderr by a copy that survives a reader's end.
		opt.Log = func(text string) { fmt.Fprintln(os.Stderr, programName+":", text) }
	}
	opt.Watcher = []string{"/proc/self/exe", watcherCommand}
	told := s
	told.Command = clipped(s.Command)
	opt.Setup = told.Encode()
	st, err := hold.Run(opt)
	if s.Dir != "" {
		// The watcher may have been killed; what it left behind is small, and
		// the next run sweeps it where this fails.
		_ = loader.Remove(s.Dir)
	}
	if err != nil {
		return 0, notStarted(s.Command[0], err)
	}
	st.Die()
	return 0, nil // Die does not return
}

// preparePatience is how long the start of the command may wait for the hook
// and the run directory: the home directory may lie on a file server that does
// not answer, and the command may not need it at all.
const preparePatience = 2 * time.Second

// prepare is loader.Prepare, within bounds.
func prepare(opt loader.Options) (loader.Prepared, error) {
	type result struct {
		loader.Prepared
		err error
	}
	c := make(chan result, 1)
	go func() {
		prepared, err := loader.Prepare(opt)
		c <- result{prepared, err}
	}()
	select {
	case r := <-c:
		return r.Prepared, r.err
	case <-time.After(preparePatience):
		return loader.Prepared{}, fmt.Errorf("no answer from the file system within %v", preparePatience)
	}
}

// clipped shortens a command line to what the watcher is told of it: the
// message to it is bounded, and the files of a data set may be named here.
func clipped(args []string) []string {
	const most = 16 << 10
	size := 0
	for i, a := range args {
		if size += len(a) + 1; size > most {
			return append(slices.Clone(args[:i]), "...")
		}
	}
	return args
}

// flushPatience is how long the holder waits for the watcher's last words.
const flushPatience = 2 * time.Second

// runName names the run directory: JOB.STEP.TASK under Slurm, else empty.
func runName(p process) string {
	if job, ok := slurm.FromEnv(p.lookup); ok {
		if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
			job = job.InCgroup(b)
		}
		return fmt.Sprintf("%s.%s.%d", job.ID, job.StepID, job.Task)
	}
	return ""
}

// inherited returns the descriptor that an events file of the form /dev/fd/N
// names: the watcher must have it too. Standard error it always has.
func inherited(path string) []int {
	if path == "/dev/stdout" {
		return []int{1}
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if n, err := strconv.Atoi(strings.TrimPrefix(path, dir)); err == nil && strings.HasPrefix(path, dir) && n > 0 && n != 2 {
			return []int{n}
		}
	}
	return nil
}
