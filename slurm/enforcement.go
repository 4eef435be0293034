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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Enforcement is what slurmstepd does about memory on this node.
type Enforcement struct {
	// Known is false where no configuration could be read: then nothing below
	// says anything.
	Known bool
	// Source is the configuration file that was read, or "scontrol show
	// config", or both.
	Source string
	// Open names the parameters that no source settled and whose default
	// depends on the version of Slurm.
	Open []string

	// OverMemoryKill, UsePss, NoShared and NoFileCache are words of
	// JobAcctGatherParams. Only with the first does slurmstepd kill.
	OverMemoryKill bool
	UsePss         bool
	NoShared       bool
	NoFileCache    bool
	// Gather is JobAcctGatherType without its prefix: "linux", "cgroup",
	// "none"; empty where it is open.
	Gather string
	// VSizeFactor is in percent of the memory limit, 0 where virtual memory is
	// not limited.
	VSizeFactor int
	// Interval is how often slurmstepd polls: task= of JobAcctGatherFrequency,
	// or what --acctg-freq made of it. 0 means only when a task starts or ends
	// and on request, such as by sstat or slurmd.
	Interval time.Duration

	// ConstrainRAM and ConstrainSwap are cgroup.conf's, and false without
	// task/cgroup in TaskPlugin. The cgroup itself says more: read that first.
	ConstrainRAM  bool
	ConstrainSwap bool
	// SelectMemory says that memory is a consumable resource: without it a job
	// has the whole node.
	SelectMemory bool

	SelectTypeParameters string
	TaskPlugin           string
	Version              string // of scontrol show config or scontrol --version; empty where only files were read
}

// Sums returns the accounting by which slurmstepd adds up a step before it
// compares the sum with the step's limit: "rss", "pss", "noshared" or
// "cgroup"; empty where it kills nothing, or where that is not known. Without
// memory in SelectTypeParameters no step has a limit that it could compare
// with, whatever --mem and SLURM_MEM_PER_NODE say.
//
// byPPID says that the sum is taken over the task and its descendants by
// parent PID, so that an orphan falls out of it. See measured.md for what
// was measured.
func (e Enforcement) Sums() (accounting string, byPPID bool) {
	if !e.Known || !e.OverMemoryKill || e.withoutMemory() {
		return "", false
	}
	switch e.Gather {
	case "linux":
		switch {
		case e.NoShared:
			return "noshared", true
		case e.UsePss:
			return "pss", true
		}
		return "rss", true
	case "cgroup":
		return "cgroup", false
	}
	return "", false
}

// JobKill says what slurmd does with the sum of a job's steps on a node (OverMemoryKill,
// job_mem_limit_enforce): it compares that with the job's memory at each ping and has
// slurmctld cancel the job. From 20.11 to 26.05.2 the request names no job, so that only
// "Exceeded job memory limit" is written to the job's stderr (fixed by commit 376311308e).
// Where known is false the version decides and is not known.
func (e Enforcement) JobKill() (kills, known bool) {
	if sums, _ := e.Sums(); sums == "" {
		return false, e.Known
	}
	return !Release{20, 11, 0}.In(e.Version) || Release{26, 5, 3}.In(e.Version), e.Version != ""
}

// withoutMemory says for certain that memory is no consumable resource.
func (e Enforcement) withoutMemory() bool { return e.SelectTypeParameters != "" && !e.SelectMemory }

func (e Enforcement) String() string {
	if !e.Known {
		return "not known"
	}
	if sums, _ := e.Sums(); sums != "" && e.Interval == 0 {
		return fmt.Sprintf("slurmstepd kills on summed %s when it is asked (%s)", sums, e.Source)
	} else if sums != "" {
		return fmt.Sprintf("slurmstepd kills on summed %s every %v (%s)", sums, e.Interval, e.Source)
	}
	if e.ConstrainRAM || e.ConstrainSwap {
		return fmt.Sprintf("the kernel's OOM killer, by the cgroup's limit (%s)", e.Source)
	}
	if e.OverMemoryKill && e.withoutMemory() {
		return fmt.Sprintf("nothing enforces memory: SelectTypeParameters=%s leaves it out (%s)", e.SelectTypeParameters, e.Source)
	}
	return fmt.Sprintf("nothing enforces memory (%s)", e.Source)
}

// defaultInterval is that of JobAcctGatherFrequency (slurm.conf(5)).
const defaultInterval = 30 * time.Second

// enforcement makes sense of parameters, whichever source they came from.
func enforcement(get func(key string) (string, bool)) Enforcement {
	e := Enforcement{Known: true, Interval: defaultInterval}
	value := func(key string) string {
		v, _ := get(key)
		return v
	}
	// What these are by default depends on the version.
	settled := func(name string) string {
		v, ok := get(strings.ToLower(name))
		if !ok {
			e.Open = append(e.Open, name)
		}
		return v
	}
	for word := range strings.SplitSeq(value("jobacctgatherparams"), ",") {
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "overmemorykill":
			e.OverMemoryKill = true
		case "usepss":
			e.UsePss = true
		case "noshared":
			e.NoShared = true
		case "no_file_cache":
			e.NoFileCache = true
		}
	}
	e.Gather = strings.TrimPrefix(strings.ToLower(settled("JobAcctGatherType")), "jobacct_gather/")
	if d, ok := parseFrequency(value("jobacctgatherfrequency")); ok {
		e.Interval = d
	}
	e.VSizeFactor = percent(value("vsizefactor"))
	e.TaskPlugin = settled("TaskPlugin")
	settled("ProctrackType")
	e.SelectTypeParameters = settled("SelectTypeParameters")
	e.SelectMemory = strings.Contains(strings.ToLower(e.SelectTypeParameters), "memory")
	e.Version = value("slurm_version")
	if strings.Contains(strings.ToLower(e.TaskPlugin), "cgroup") {
		e.ConstrainRAM = truth(value("constrainramspace"))
		e.ConstrainSwap = truth(value("constrainswapspace"))
	}
	return e
}

// parseFrequency reads the value of JobAcctGatherFrequency and --acctg-freq, "task=30,energy=10"
// or "30": the time between two polls of the tasks. It reports false where none is named.
func parseFrequency(s string) (time.Duration, bool) {
	found, ok := time.Duration(0), false
	for part := range strings.SplitSeq(s, ",") {
		name, value, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			name, value = "task", name
		}
		if !strings.EqualFold(strings.TrimSpace(name), "task") {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
		if err != nil {
			return 0, false
		}
		found, ok = time.Duration(n)*time.Second, true
	}
	return found, ok
}

// truth reads a boolean as Slurm's parser does (parse_config.c).
func truth(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "up", "true", "1":
		return true
	}
	return false
}

// percent reads "100", "100.0%" and "101 percent", 0 where it says nothing.
func percent(s string) int {
	fields := strings.Fields(strings.ReplaceAll(s, "%", " "))
	if len(fields) == 0 {
		return 0
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || !(v >= 0 && v <= 1e6) {
		return 0
	}
	return int(v)
}

// confPaths is where Slurm keeps its configuration when SLURM_CONF does not
// say: built-in paths of the distributions, then those that a configless
// slurmd keeps its copy in.
var confPaths = []string{
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
	// Paths are tried in order after the job's SLURM_CONF; nil means confPaths.
	Paths []string
	// ReadFile reads one file; nil means [ReadFile].
	ReadFile func(name string) ([]byte, error)
	// Scontrol runs scontrol with these arguments and returns what it printed;
	// nil means that it is never asked. See [Scontrol].
	Scontrol func(ctx context.Context, args ...string) ([]byte, error)
	// Pause is called before slurmctld is asked, which scontrol --version does not do; nil
	// means at once.
	Pause func()
	// Lookup reads the environment, for what overrides the configuration; nil
	// means an empty one.
	Lookup func(string) (string, bool)
}

// errNoConfig is wrapped by the error of [FindEnforcement] where neither a
// file nor scontrol said anything.
var errNoConfig = errors.New("no slurm configuration")

// FindEnforcement finds out what slurmstepd does about memory here: from slurm.conf and
// cgroup.conf, and from scontrol only where they cannot be read or leave open whether and on
// what it kills. The result is worth something even beside an error: look at Known. It may
// block on a network file system or on slurmctld.
func FindEnforcement(ctx context.Context, job Job, s Search) (Enforcement, error) {
	if s.ReadFile == nil {
		s.ReadFile = ReadFile
	}
	var e Enforcement
	conf, confErr := s.findConf(job)
	if confErr == nil {
		e = enforcement(conf.Get)
		e.Source = conf.Path
		if s.Scontrol == nil || len(conf.Missing) == 0 && (!e.OverMemoryKill || e.Gather != "") {
			for _, miss := range conf.Missing {
				e.Open = append(e.Open, "what "+miss+" says")
			}
			return s.override(s.withVersion(ctx, e)), nil
		}
	}
	if s.Scontrol == nil {
		return e, confErr
	}
	if s.Pause != nil {
		s.Pause()
	}
	ctx, cancel := context.WithTimeout(ctx, ScontrolTimeout)
	defer cancel()
	out, err := s.Scontrol(ctx, "show", "config")
	var shown map[string]string
	if err == nil {
		shown, err = ParseShowConfig(out)
	}
	if err == nil {
		e = enforcement(func(key string) (string, bool) { v, ok := shown[key]; return v, ok })
		e.Source = "scontrol show config"
		return s.override(e), nil
	}
	if e.Known {
		e = s.override(e)
	}
	return e, errors.Join(confErr, fmt.Errorf("cannot ask scontrol: %w", err))
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

// findConf reads the first slurm.conf there is, with the cgroup.conf beside it.
func (s Search) findConf(job Job) (*confFile, error) {
	paths := s.Paths
	if paths == nil {
		paths = confPaths
	}
	if job.ConfFile != "" {
		paths = append([]string{job.ConfFile}, paths...)
	}
	var denied error
	for _, path := range paths {
		conf, err := readConf(path, s.ReadFile)
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
		return nil, fmt.Errorf("%w: %w", errNoConfig, denied)
	}
	return nil, fmt.Errorf("%w in %s", errNoConfig, strings.Join(paths, ", "))
}

// override applies what the user asked for by --acctg-freq, which the task
// sees in its environment.
func (s Search) override(e Enforcement) Enforcement {
	if s.Lookup == nil {
		return e
	}
	for _, name := range []string{"SLURM_ACCTG_FREQ", "SBATCH_ACCTG_FREQ"} {
		if v, ok := s.Lookup(name); ok {
			if d, ok := parseFrequency(v); ok {
				e.Interval = d
				break
			}
		}
	}
	return e
}

// Scontrol runs the scontrol of PATH, for [Search] and [Requeue]. It is ended with the context.
func Scontrol(ctx context.Context, args ...string) ([]byte, error) {
	return ScontrolBy(ctx, (*exec.Cmd).Start, args...)
}

// ScontrolBy is [Scontrol] for a process that starts programs in a way of its own. One that
// only asks ends with us. Of commands that change something some say on stderr alone that
// they did nothing, and end with status 0: there what is said on stderr is an error.
func ScontrolBy(ctx context.Context, start func(*exec.Cmd) error, args ...string) ([]byte, error) {
	asks := args[0] == "show" || strings.HasPrefix(args[0], "-")
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.Env = StandardTimes(cmd.Environ())
	if asks {
		// The kernel sends the death signal when the thread dies that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	name, line := strings.Join(cmd.Args, " "), firstLine(errs.Bytes())
	switch {
	case err != nil && line != "":
		return nil, fmt.Errorf("%s: %w: %s", name, err, line)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case line != "" && !asks:
		return nil, fmt.Errorf("%s: %s", name, line)
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

// errShowConfig says that a text is not what scontrol prints.
var errShowConfig = errors.New("not the output of scontrol show config")

// ParseShowConfig reads what "scontrol show config" prints, "Name = Value" a
// line, the block of cgroup.conf included. Names become lower case; a value of
// "(null)" or "N/A" is empty.
func ParseShowConfig(b []byte) (map[string]string, error) {
	values := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "(null)" || value == "N/A" {
			value = ""
		}
		values[strings.ToLower(name)] = value
	}
	if _, ok := values["jobacctgathertype"]; !ok {
		return nil, errShowConfig
	}
	return values, nil
}
