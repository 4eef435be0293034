package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// option is one thing that a user may choose: as a flag --name, as RSSWARDEN_NAME
// in the environment, and as a key of that name in a file.
type option struct {
	name string
	kind config.Kind
	def  string // the default; empty where there is none
	arg  string // what --help calls the value
	// usage is for --help: with the default behind it, it fits a line. Empty for
	// what --help only names: it has one screen.
	usage string
	// example is a value as a file has it, for the reference.
	example string
	// set checks the values and puts them into the settings. Only a list has
	// other than one value. Its error is a *wrongValue.
	set func(s *supervisor.Settings, values []string) error
}

// watchOptions are those that every watch has, whoever started what it watches.
var watchOptions = []option{
	{"limit", config.Text, "", "SIZE", "keep the tree below SIZE, beside the limits found", `"90%"`, setLimit},
	{"accounting", config.Text, "auto", "HOW", "what --limit counts: rss, pss, noshared, cgroup", `"rss"`, func(s *supervisor.Settings, v []string) error {
		s.Accounting = event.Accounting(v[0])
		return oneOf(v[0], "auto", "rss", "pss", "noshared", "cgroup")
	}},
	{"at", config.List, "", "RULE", "add RULE to the ladder (repeatable); none clears it", `["85%:signal=USR2", "98%:stop"]`, setLadder},
	{"dry-run", config.Truth, "", "", "decide and say so, do nothing", "true", func(s *supervisor.Settings, v []string) error {
		return setTruth(&s.DryRun, v[0])
	}},
	{"interval", config.Text, "1s", "DURATION", "", `"500ms"`, func(s *supervisor.Settings, v []string) error {
		return setDuration(&s.Interval, v[0], 2*time.Millisecond, time.Hour)
	}},
	{"events", config.Text, "", "FILE", "append every event to FILE as JSON lines", `"events.jsonl"`, func(s *supervisor.Settings, v []string) error {
		s.Events = v[0]
		return nil
	}},
	{"record", config.Text, "auto", "DIR", "keep the full record in DIR; none keeps nothing", `"/tmp/records"`, setRecord},
	{"textfile", config.Text, "", "DIR", "", `"/var/lib/prometheus/rsswarden"`, setTextfile},
	{"trim", config.Text, "hook", "HOW", "drop mapped file pages: hook, auto, ptrace, off", `"auto"`, func(s *supervisor.Settings, v []string) error {
		s.Trim = supervisor.TrimMode(v[0])
		return oneOf(v[0], "hook", "auto", "ptrace", "off")
	}},
	{"trim-private", config.Truth, "", "", "", "true", func(s *supervisor.Settings, v []string) error {
		return setTruth(&s.TrimPrivate, v[0])
	}},
	{"worker-signal", config.Text, "", "SIG", "", `"TERM"`, setWorkerSignal},
	{"worker-match", config.Text, "", "REGEXP", "", `"my_pool worker"`, setWorkerMatch},
	{"alert", config.List, "", "URL", "tell Alertmanager or a webhook of rungs (repeatable)", `["http://alertmanager:9093"]`, setAlerts},
	{"alert-token-file", config.Text, "", "FILE", "", `"/home/me/.alert-token"`, setAlertTokenFile},
	{"quiet", config.Truth, "", "", "say nothing on stderr", "true", func(s *supervisor.Settings, v []string) error {
		return setTruth(&s.Quiet, v[0])
	}},
	{"log-format", config.Text, "console", "FORM", "", `"json"`, func(s *supervisor.Settings, v []string) error {
		s.LogFormat = v[0]
		return oneOf(v[0], "console", "json")
	}},
}

// runOptions are those of a watch that starts the command itself.
var runOptions = []option{
	{"loader", config.Text, "auto", "HOW", "", `"off"`, func(s *supervisor.Settings, v []string) error {
		s.Loader = v[0] == "auto"
		return oneOf(v[0], "auto", "off")
	}},
	{"nofile", config.Text, "", "N", "", "65536", setCount("a number of descriptors", "65536", 1<<16, func(s *supervisor.Settings, n int) { s.NoFile = n })},
	{"oom-prefer", config.Text, "none", "WHOM", "", `"workers"`, func(s *supervisor.Settings, v []string) error {
		s.OOMPrefer = v[0] == "workers"
		return oneOf(v[0], "workers", "none")
	}},
	{"checkpoint-signal", config.Text, "", "SIG", "", `"USR2@rank0"`, setCheckpointSignal},
	{"checkpoint-file", config.Text, "", "PATH", "", `"/scratch/me/model.pt"`, setCheckpointFile},
	{"checkpoint-timeout", config.Text, "60s", "DURATION", "", `"3m"`, func(s *supervisor.Settings, v []string) error {
		return setDuration(&s.CheckpointTimeout, v[0], 0, 4*time.Minute)
	}},
	{"max-requeues", config.Text, "3", "N", "", "5", setMaxRequeues},
	{"alert-comment", config.Truth, "", "", "", "true", func(s *supervisor.Settings, v []string) error {
		return setTruth(&s.AlertComment, v[0])
	}},
	{"stop-status", config.Text, "137", "N", "", "85", setStopStatus},
	{"grace", config.Text, "30s", "DURATION", "", `"2m"`, func(s *supervisor.Settings, v []string) error {
		return setDuration(&s.Grace, v[0], 0, 24*time.Hour)
	}},
}

// about tells of each option what --help has no room for.
var about = map[string]string{
	"limit": "Keep the command and its descendants below this, beside the limits that are\n" +
		"found: a size as in sbatch --mem (3000 and 3000M are MiB, 3G is GiB), or a\n" +
		"share of the least limit found.",
	"accounting": "How limit adds memory up: rss (sum of RSS), pss, noshared (RSS less shared\n" +
		"pages) or cgroup; auto is as the enforcer of the least limit does, else rss.",
	"at": "Rules to add to the ladder; \"none\" as the first clears the ladder that is\n" +
		"there by default. A rule is [LIMIT ]WHEN:ACTION; WHEN is N%, free<SIZE or\n" +
		"eta<DURATION. In the environment: one rule a line.",
	"dry-run":  "Decide and say so, do nothing.",
	"interval": "Longest pause between two looks; near a limit they are much shorter.",
	"events": "Append every event to this file, as JSON lines. /dev/fd/3 works; a relative\n" +
		"name is looked for in the working directory of the job.",
	"record": "Where the full record of a run goes, for rsswarden report: a directory on a\n" +
		"disk of the node, 64 MiB a run at most, or \"none\" for neither record nor journal.\n" +
		"With a directory it is written from the start. \"auto\" writes once a rule has fired\n" +
		"or a minute has passed: under Slurm below $TMPDIR or /tmp, else $XDG_STATE_HOME.",
	"textfile": "A directory that node_exporter reads (--collector.textfile.directory): one file of\n" +
		"metrics for the run, written each 15 s and at each decision, removed at the end.",
	"trim": "How mapped file pages are dropped: \"hook\" (workers of PyTorch loaders do it),\n" +
		"\"auto\" (loader workers without the hook too: ptrace stops them for moments),\n" +
		"\"ptrace\" (by that alone, in every process of the job) or \"off\".",
	"trim-private": "Have them drop private mappings of data files too, where nothing was written\nto them.",
	"worker-signal": "Recycle the workers of a pool that starts a new one where one ends, by this\n" +
		"signal; goes with worker-match.",
	"worker-match": "Which processes those are: a regular expression over the command line, of the\n" +
		"form of https://pkg.go.dev/regexp/syntax.",
	"alert": "Whom to tell of each rung that is crossed, and again when it was left: Alertmanager\n" +
		"(alertmanager+URL, or a URL without a path) or a webhook (webhook+URL, or a URL\n" +
		"with one). In the environment: one a line. A user and password or a query may\n" +
		"stand in a URL here and in the environment, not on the command line.",
	"alert-token-file": "A file with the token that goes along as \"Authorization: Bearer TOKEN\". It may\n" +
		"stand in the variable RSSWARDEN_ALERT_TOKEN instead.",
	"quiet":      "Say nothing on stderr.",
	"log-format": "Form of our lines on stderr: \"console\", or \"json\" for one object a line.",
	"loader":     "Talk to PyTorch loaders through a hook: \"auto\" or \"off\".",
	"nofile": "Where a DataLoader is about to send many tensors to workers started by spawn,\n" +
		"the loader hook raises the soft RLIMIT_NOFILE of that process to what it needs,\n" +
		"no further than this and its hard limit. At most 65536. Nothing else is changed.",
	"oom-prefer": "\"workers\" raises oom_score_adj of loader workers, where a cgroup limits the\n" +
		"job: should that be full, the kernel kills a worker, and the trainer can still\n" +
		"catch the error and write a checkpoint.",
	"checkpoint-signal": "Before a rule with the action requeue puts the job back into the queue: the signal\n" +
		"by which the training is asked for a checkpoint, as by signal=; USR2@rank0 asks\n" +
		"rank 0 alone.",
	"checkpoint-file": "What that checkpoint is written to: a file, or a directory into which it is\n" +
		"renamed. Once it was written and then left alone for 1 s the wait is over. Without\n" +
		"it the wait ends with the command, or after checkpoint-timeout.",
	"checkpoint-timeout": "How long the end of the checkpoint is waited for; 4m at most.",
	"max-requeues": "How often a job is started again at most, counted by SLURM_RESTART_COUNT, which\n" +
		"counts every requeue of the job.",
	"alert-comment": "Write a few words into the job's comment at a warning and at the end, behind what\n" +
		"the user has there.",
	"stop-status": "Exit status when a rule with the action stop ended the command.",
	"grace":       "Time between TERM and KILL when such a rule fires.",
}

func (o option) shownDefault() string {
	switch {
	case o.kind == config.Truth:
		return "false"
	case o.def == "":
		return "none"
	case strings.Trim(o.def, "0123456789") == "":
		return o.def
	}
	return fmt.Sprintf("%q", o.def)
}

// removedOptions are options that former versions had, with what to do instead.
var removedOptions = map[string]string{
	"malloc-arenas": "set the variable of glibc instead: rsswarden run -- env MALLOC_ARENA_MAX=2 COMMAND",
	"guard-cgroup":  "leave it out: near a limit memory is read more often by itself; --interval 100ms reads at least that often",
}

// longest bounds the value of an option, in bytes: the watcher is handed all of
// them in one message, and without it watches nothing.
const longest = 4 << 10

// apply checks the values and puts them into the settings.
func (o option) apply(s *supervisor.Settings, values []string) error {
	size := 0
	for _, v := range values {
		if strings.ContainsRune(v, 0) {
			return wrongf("leave it out", " has a NUL byte in it")
		}
		size += len(v)
	}
	if size > longest {
		return wrongf("say it shorter; a longer command for exec= goes into a script", " is longer than %d KiB", longest>>10)
	}
	return o.set(s, values)
}

// configOption names a file with options, and can stand in none.
var configOption = option{
	name: "config", kind: config.Text, arg: "FILE", usage: "read options from FILE, in TOML: limit = \"3G\"",
}

// watchFlags are the flags that every watch has.
func watchFlags() []cli.Flag {
	return append(flags(watchOptions), flags([]option{configOption})...)
}

// runFlags are the flags of a watch that starts the command itself.
func runFlags() []cli.Flag {
	return append(append(flags(watchOptions), flags(runOptions)...), flags([]option{configOption})...)
}

func flags(options []option) []cli.Flag {
	var all []cli.Flag
	for _, o := range options {
		// The cli package takes the name of the value from backquotes.
		usage := o.usage
		if o.arg != "" {
			usage = "`" + o.arg + "`: " + o.usage
		}
		switch o.kind {
		case config.Truth:
			all = append(all, &cli.BoolFlag{Name: o.name, Usage: usage, Hidden: o.usage == ""})
		case config.List:
			all = append(all, &cli.StringSliceFlag{Name: o.name, Usage: usage, Hidden: o.usage == ""})
		default:
			all = append(all, &cli.StringFlag{Name: o.name, Value: o.def, Usage: usage, Hidden: o.usage == ""})
		}
	}
	return all
}

func setCheckpointSignal(s *supervisor.Settings, v []string) error {
	s.CheckpointSignal = ""
	if v[0] == "" {
		return nil
	}
	r, err := event.AskBySignal(v[0])
	if err != nil {
		return wrongSignal(err)
	}
	s.CheckpointSignal = r.Arg
	return nil
}

// wrongSignal says what is wrong with a signal that is to ask for a checkpoint.
func wrongSignal(err error) error {
	var bad *event.RuleError
	if errors.As(err, &bad) {
		return wrongf(bad.Hint, " %v", bad)
	}
	return err
}

func setCheckpointFile(s *supervisor.Settings, v []string) error {
	s.CheckpointFile = v[0]
	if v[0] == "" {
		return nil
	}
	path, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.CheckpointFile = path
	return nil
}

func setMaxRequeues(s *supervisor.Settings, v []string) error {
	n, err := strconv.Atoi(v[0])
	if err != nil || n < 1 || n > 1000 {
		return wrongf("give a number from 1 to 1000, such as 3", " %q is not a number of requeues", v[0])
	}
	s.MaxRequeues = n
	return nil
}

func setTextfile(s *supervisor.Settings, v []string) error {
	s.Textfile = ""
	if v[0] == "" {
		return nil
	}
	dir, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.Textfile = dir
	return nil
}

const (
	alertOption = "alert"
	alertToken  = "alert-token" // a variable only: everybody may read a command line
	// alertProgram carries alerts over the network, which this program links nothing
	// for.
	alertProgram = "rsswardend"
	mostReceiver = 8
)

// setAlerts sets the receivers. No error repeats a URL: a password may stand in it. Of
// several it is said which, as they were written.
func setAlerts(s *supervisor.Settings, values []string) error {
	const hint = "write it as http://alertmanager:9093, alertmanager+https://HOST/PATH or webhook+https://HOST/PATH"
	s.Alerts = nil
	for i, v := range values {
		t, err := alert.ParseTarget(v)
		if err != nil {
			return wrongf(hint, ": %s %v", whichOf(i, len(values)), err)
		}
		if !slices.Contains(s.Alerts, t) {
			s.Alerts = append(s.Alerts, t)
		}
	}
	if len(s.Alerts) > mostReceiver {
		return wrongf("let Alertmanager tell the others", " has %d receivers, and %d are the most", len(s.Alerts), mostReceiver)
	}
	return nil
}

// whichOf names a value that must not be repeated.
func whichOf(i, n int) string {
	if n == 1 {
		return "its value"
	}
	return fmt.Sprintf("value %d of %d", i+1, n)
}

func setAlertTokenFile(s *supervisor.Settings, v []string) error {
	s.AlertTokenFile = ""
	if v[0] == "" {
		return nil
	}
	path, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.AlertTokenFile = path
	return nil
}

// shown is a value as it is told of: of --alert without what is secret.
func (o option) shown(v chosen) chosen {
	if o.name != alertOption {
		return v
	}
	v.values = slices.Clone(v.values)
	for i, text := range v.values {
		v.values[i] = alert.Redact(text)
	}
	return v
}

// wrongValue says what is wrong with a value. What stands in front of it names
// the option as the user wrote it.
type wrongValue struct {
	says, hint string
}

func (e *wrongValue) Error() string { return e.says }

func wrongf(hint, format string, args ...any) error {
	return &wrongValue{says: fmt.Sprintf(format, args...), hint: hint}
}

func setLimit(s *supervisor.Settings, v []string) error {
	const hint = "give a size as in sbatch --mem, such as 3G, or a share of the limit found, above 0% and at most 100%, such as 90%"
	s.Limit, s.LimitShare = 0, 0
	if v[0] == "" {
		return nil
	}
	if share, ok := strings.CutSuffix(v[0], "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(f > 0 && f <= 100) {
			return wrongf(hint, " %q is not a share of a limit", v[0])
		}
		s.LimitShare = f / 100
		return nil
	}
	b, err := rss.ParseBytes(v[0])
	if err != nil || b == 0 {
		return wrongf(hint, " %q is not a size", v[0])
	}
	s.Limit = b
	return nil
}

func setRecord(s *supervisor.Settings, v []string) error {
	s.Record = v[0]
	if v[0] == "" {
		s.Record = supervisor.RecordAuto
	}
	if s.Record == supervisor.RecordAuto || s.Record == supervisor.RecordNone {
		return nil
	}
	dir, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.Record = dir
	return nil
}

// setLadder puts the rules in as text: the defaults and what --at adds.
func setLadder(s *supervisor.Settings, at []string) error {
	rules, err := policy.Ladder(at)
	if err != nil {
		hint := "a rule looks like 85%:trim"
		var bad *event.RuleError
		if errors.As(err, &bad) {
			hint = bad.Hint
			if guess := meantRule(bad.Rule); guess != "" {
				hint = guess
			}
		}
		return wrongf(hint, ": %v", err)
	}
	s.Rules = rules
	return nil
}

func setWorkerSignal(s *supervisor.Settings, v []string) error {
	s.WorkerSignal = 0
	if v[0] == "" {
		return nil
	}
	n, err := event.ParseSignal(v[0])
	if err != nil {
		return wrongf("name a signal, such as TERM or USR1", ": %v", err)
	}
	s.WorkerSignal = int(n)
	return nil
}

func setWorkerMatch(s *supervisor.Settings, v []string) error {
	if _, err := regexp.Compile(v[0]); err != nil {
		return wrongf("see https://pkg.go.dev/regexp/syntax; such as 'my_pool worker'", ": %v", err)
	}
	s.WorkerMatch = v[0]
	return nil
}

func setStopStatus(s *supervisor.Settings, v []string) error {
	n, err := strconv.Atoi(v[0])
	if err != nil || n < 0 || n > 255 {
		return wrongf("give a number from 0 to 255, such as 85", " %q is not an exit status", v[0])
	}
	s.StopStatus = n
	return nil
}

// setCount sets a number of at least 1, or none where the value is empty.
func setCount(what, example string, most int, set func(*supervisor.Settings, int)) func(*supervisor.Settings, []string) error {
	return func(s *supervisor.Settings, v []string) error {
		n := 0
		if v[0] != "" {
			var err error
			if n, err = strconv.Atoi(v[0]); err != nil || n < 1 || n > most {
				return wrongf(fmt.Sprintf("give a number from 1 to %d, such as %s", most, example), " %q is not %s", v[0], what)
			}
		}
		set(s, n)
		return nil
	}
}

func setTruth(to *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil && v != "" {
		return wrongf("write true or false", " %q is neither true nor false", v)
	}
	*to = b
	return nil
}

func setDuration(to *time.Duration, v string, least, most time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		hint := "give a number with a unit, such as 500ms or 2s"
		if _, err := strconv.ParseFloat(v, 64); err == nil {
			hint = "give the number a unit: " + v + "s are seconds, " + v + "ms thousandths"
		}
		return wrongf(hint, " %q is not a duration", v)
	}
	if d < least || d > most {
		return wrongf("give a duration from "+least.String()+" to "+most.String(), " %s is out of range", v)
	}
	*to = d
	return nil
}

func oneOf(v string, values ...string) error {
	for _, want := range values {
		if v == want {
			return nil
		}
	}
	hint := "write one of them, such as " + values[0]
	if near := text.Similar(v, values); near != "" {
		hint = "did you mean " + near + "?"
	}
	return wrongf(hint, " %q is none of %s", v, alternatives(values, "and"))
}

// alternatives lists words: "a, b or c".
func alternatives(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}
