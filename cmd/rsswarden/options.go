package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
