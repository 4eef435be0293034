package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// ConfPaths is where Slurm keeps its configuration when SLURM_CONF does not
// say: built-in paths of the distributions, then those that a configless
// slurmd keeps its copy in.
var ConfPaths = []string{
	"/etc/slurm/slurm.conf",
	"/etc/slurm-llnl/slurm.conf",
	"/run/slurm/conf/slurm.conf",
	"/var/spool/slurmd/conf-cache/slurm.conf",
}

// ScontrolTimeout is how long one call of scontrol may take.
const ScontrolTimeout = 10 * time.Second

// Search says how configuration is found. The zero value reads the real files
// and never runs scontrol.
type Search struct {
	// Paths are tried in order after the job's SLURM_CONF; nil means ConfPaths.
	Paths []string
	// ReadFile reads one file; nil means [ReadFile].
	ReadFile func(name string) ([]byte, error)
	// Scontrol runs scontrol with these arguments and returns what it printed;
	// nil means that it is never asked. See [Scontrol].
	Scontrol func(ctx context.Context, args ...string) ([]byte, error)
	// Lookup reads the environment, for what overrides the configuration; nil
	// means an empty one.
	Lookup func(string) (string, bool)
}

// ErrNoConfig is wrapped by the error of [FindEnforcement] where neither a
// file nor scontrol said anything.
var ErrNoConfig = errors.New("no slurm configuration")

// FindEnforcement finds out what slurmstepd does about memory here: from
// slurm.conf and cgroup.conf, and from scontrol only where they cannot be read
// or leave something open that decides whether and on what slurmstepd kills.
//
// The result is worth something even beside an error: look at Known. It may
// block on a network file system or on slurmctld.
func FindEnforcement(ctx context.Context, job Job, s Search) (Enforcement, error) {
	if s.ReadFile == nil {
		s.ReadFile = ReadFile
	}
	conf, confErr := s.findConf(job)
	if confErr == nil {
		e := enforcement(conf.Get)
		e.Source = conf.Path
		if complete(e, conf) || s.Scontrol == nil {
			for _, miss := range conf.Missing {
				e.Open = append(e.Open, "what "+miss+" says")
			}
			return s.override(s.withVersion(ctx, e)), nil
		}
	}
	if s.Scontrol == nil {
		return Enforcement{}, confErr
	}
	ctx, cancel := context.WithTimeout(ctx, ScontrolTimeout)
	defer cancel()
	out, err := s.Scontrol(ctx, "show", "config")
	if err == nil {
		var shown map[string]string
		if shown, err = ParseShowConfig(out); err == nil {
			e := enforcement(func(key string) (string, bool) { v, ok := shown[key]; return v, ok })
			e.Source = "scontrol show config"
			return s.override(e), nil
		}
	}
	err = fmt.Errorf("cannot ask scontrol: %w", err)
	if confErr != nil {
		return Enforcement{}, errors.Join(confErr, err)
	}
	e := enforcement(conf.Get)
	e.Source = conf.Path
	return s.override(e), err
}

// withVersion adds the version where the files settle all but that, and it decides who
// else kills.
func (s Search) withVersion(ctx context.Context, e Enforcement) Enforcement {
	if s.Scontrol == nil || e.Version != "" || !e.OverMemoryKill {
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, ScontrolTimeout)
	defer cancel()
	e.Version, _ = FindVersion(ctx, s.Scontrol) // unknown where it does not answer
	return e
}

// complete says that scontrol has nothing to add that matters.
func complete(e Enforcement, conf *Conf) bool {
	if len(conf.Missing) > 0 {
		return false
	}
	return !e.OverMemoryKill || e.Gather != ""
}

// findConf reads the first slurm.conf there is, with the cgroup.conf beside it.
func (s Search) findConf(job Job) (*Conf, error) {
	paths := s.Paths
	if paths == nil {
		paths = ConfPaths
	}
	if job.ConfFile != "" {
		paths = append([]string{job.ConfFile}, paths...)
	}
	var denied error
	for _, path := range paths {
		conf, err := ReadConf(path, s.ReadFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			denied = errors.Join(denied, err)
			continue
		}
		// Slurm takes a cgroup.conf that is not there for one full of defaults.
		beside := filepath.Join(filepath.Dir(path), "cgroup.conf")
		if err := conf.read(beside, s.ReadFile, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			conf.Missing = append(conf.Missing, beside)
		}
		return conf, nil
	}
	if denied != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoConfig, denied)
	}
	return nil, fmt.Errorf("%w in %s", ErrNoConfig, strings.Join(paths, ", "))
}

// override applies what the user asked for by --acctg-freq, which the task
// sees in its environment.
func (s Search) override(e Enforcement) Enforcement {
	if s.Lookup == nil {
		return e
	}
	for _, name := range []string{"SLURM_ACCTG_FREQ", "SBATCH_ACCTG_FREQ"} {
		v, ok := s.Lookup(name)
		if !ok {
			continue
		}
		if d, ok := ParseFrequency(v); ok {
			e.Interval, e.IntervalSource = d, name
			break
		}
	}
	return e
}

// Scontrol runs the scontrol of PATH, for [Search]. It is ended with the
// context, and with us: one that hangs is left in nobody's job.
func Scontrol(ctx context.Context, args ...string) ([]byte, error) {
	return ScontrolBy(ctx, (*exec.Cmd).Start, args...)
}

// ScontrolBy is [Scontrol] for a process that starts programs in a way of its
// own.
func ScontrolBy(ctx context.Context, start func(*exec.Cmd) error, args ...string) ([]byte, error) {
	// The kernel sends the death signal when the thread dies that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.Env = StandardTimes(cmd.Environ())
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		if line := firstLine(errs.Bytes()); line != "" {
			return nil, fmt.Errorf("scontrol %s: %w: %s", strings.Join(args, " "), err, line)
		}
		return nil, fmt.Errorf("scontrol %s: %w", strings.Join(args, " "), err)
	}
	return out.Bytes(), nil
}

// StandardTimes is env for a command of Slurm's whose times are to be read: what it prints
// else is as its user likes to see it.
func StandardTimes(env []string) []string { return append(env, "SLURM_TIME_FORMAT=standard") }

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return line
}
