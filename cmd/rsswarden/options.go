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
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// option is one setting of a watch: the flag --name, the variable RSSWARDEN_NAME, and
// the key of that name in a configuration file. Help, manual, reference, completion,
// suggestions and examples/rsswarden.toml all come from these fields.
type option struct {
	name    string
	kind    config.Kind
	def     string // the default; empty for none
	runOnly bool   // attach does not have it
	group   group
	// usage is the line in --help, with the name of the value in backquotes, as the cli
	// package has it; the default is appended.
	usage   string
	about   string   // for the manual and examples/rsswarden.toml
	example string   // a value as a configuration file writes it
	values  []string // all values it takes; empty for any
	foreign []string // what Slurm, other tools and habit call it, "NAME" or "NAME VALUE" where VALUE is what they mean
	// set checks the values and puts them into the settings. Only a list has other
	// than one value. Its error is a *valueError. It is not called for the empty
	// value of a text without a default.
	set setter
}

// group is where --help-all lists an option; a short one is in --help too.
type group struct {
	title string
	short bool
}

// The titles, in the order of --help-all.
const (
	groupLimits   = "Limits"
	groupRules    = "Rules"
	groupWorkers  = "Workers"
	groupRequeues = "Checkpoint and requeue"
	groupRecords  = "Records and alerts"
	groupAdvanced = "Advanced"
)

type setter func(s *settings.Settings, values []string) error

// options are in the order of --help-all.
var options = []option{
	{
		name: "limit", group: group{title: groupLimits, short: true},
		usage: "`SIZE`: own limit, e.g. 3G or 90%; only your rules react",
		about: `Keep the command and its descendants below this, beside the limits that are
found: a size as in sbatch --mem (3000 and 3000M are MiB, 3G is GiB), or a
share of the least limit found.`,
		example: `"90%"`, set: setLimit,
		foreign: []string{"mem", "memory", "mem-limit", "memory-limit", "max-mem", "max-memory", "max-rss", "size"},
	}, {
		name: "accounting", def: "auto", group: group{title: groupLimits},
		usage: "`HOW`: --limit counts by rss, pss, noshared, cgroup or auto",
		about: `How limit adds memory up: rss (summed RSS), pss, noshared (RSS less shared
pages) or cgroup; auto is as the enforcer of the least limit does, else rss.`,
		example: `"rss"`, values: []string{"auto", "rss", "pss", "noshared", "cgroup"},
		set: func(s *settings.Settings, v []string) error { s.Accounting = event.Accounting(v[0]); return nil },
	}, {
		name: "at", kind: config.List, group: group{title: groupRules, short: true},
		usage: "`RULE`: add a rule, e.g. '95%:stop'; none clears the default ones",
		about: `Rules to add to the default ladder; "none" as the first clears that ladder. A rule
is [LIMIT ]WHEN:ACTION; WHEN is N%, free<SIZE or eta<DURATION. In the environment:
one rule a line.`,
		example: `["85%:signal=USR2", "98%:stop"]`, set: setLadder,
		foreign: []string{"rule", "rules", "ladder", "threshold", "no-at none", "no-rules none"},
	}, {
		name: "dry-run", kind: config.Truth, group: group{title: groupRules, short: true},
		usage:   "say what would be done, do nothing",
		about:   "Say what would be done, do nothing.",
		example: "true", set: truth(func(s *settings.Settings) *bool { return &s.DryRun }),
		foreign: []string{"dry", "simulate", "n"},
	}, {
		name: "stop-status", def: "137", runOnly: true, group: group{title: groupRules},
		usage:   "`N`: exit status after a stop rule",
		about:   "Exit status when a rule with the action stop ended the command.",
		example: "85", set: number(func(s *settings.Settings) *int { return &s.StopStatus }, "an exit status", 0, 255, 85),
	}, {
		name: "grace", def: "30s", group: group{title: groupRules},
		usage:   "`DURATION`: from SIGTERM to SIGKILL in a stop rule",
		about:   "Time between TERM and KILL when such a rule fires.",
		example: `"2m"`, set: duration(func(s *settings.Settings) *time.Duration { return &s.Grace }, 0, 24*time.Hour),
	}, {
		name: "trim", def: "hook", runOnly: true, group: group{title: groupWorkers, short: true},
		usage: "`HOW`: hook, auto, ptrace, off",
		about: `How mapped file pages are dropped: "hook" (workers of PyTorch loaders do it),
"auto" (loader workers without the hook too: ptrace stops them for moments),
"ptrace" (by that alone, in every process of the job) or "off".`,
		example: `"auto"`, values: []string{"hook", "auto", "ptrace", "off"},
		set:     func(s *settings.Settings, v []string) error { s.Trim = settings.TrimMode(v[0]); return nil },
		foreign: []string{"no-trim off"},
	}, {
		name: "trim-private", kind: config.Truth, runOnly: true, group: group{title: groupWorkers},
		usage:   "trim private mappings of data files too",
		about:   "Trim private mappings of data files too, where nothing was written to them.",
		example: "true", set: truth(func(s *settings.Settings) *bool { return &s.TrimPrivate }),
	}, {
		name: "loader", def: "auto", runOnly: true, group: group{title: groupWorkers},
		usage: "`HOW`: talk to DataLoaders and pools: auto, all, off",
		about: `Talk to DataLoaders and pools through a hook: "auto"; "all", which also recycles
workers of a ProcessPoolExecutor that forks, though it then forks beside its threads, and those whose
initializer has a queue or a counter; or "off".`,
		example: `"off"`, values: []string{"auto", "all", "off"},
		set: func(s *settings.Settings, v []string) error {
			s.Loader, s.Forks = v[0] != "off", v[0] == "all"
			return nil
		},
		foreign: []string{"no-loader off", "no-hook off"},
	}, {
		name: "worker-signal", group: group{title: groupWorkers},
		usage: "`SIG`: recycle workers of another pool by this signal",
		about: `Recycle the workers of another pool by this signal: one that starts a new worker
where one ends. Goes with worker-match.`,
		example: `"TERM"`, set: setWorkerSignal,
	}, {
		name: "worker-match", group: group{title: groupWorkers},
		usage: "`REGEXP`: which processes these are, by their command lines",
		about: `Which processes are workers of that pool: a regular expression over the command
line, as https://pkg.go.dev/regexp/syntax describes it.`,
		example: `"my_pool worker"`, set: setWorkerMatch,
	}, {
		name: "oom-prefer", def: "none", runOnly: true, group: group{title: groupWorkers},
		usage: "`WHICH`: let the kernel kill these first: workers, none",
		about: `"workers" raises oom_score_adj of loader workers, where a cgroup limits the
job: should that be full, the kernel kills a worker, and the trainer can still
catch the error and write a checkpoint.`,
		example: `"workers"`, values: []string{"workers", "none"},
		set: func(s *settings.Settings, v []string) error { s.OOMPrefer = v[0] == "workers"; return nil },
	}, {
		name: "revive", def: "oom", runOnly: true, group: group{title: groupWorkers},
		usage: "`WHICH`: replace loader workers that die: oom, any, off",
		about: `Start another worker where one of a DataLoader over a map-style data set dies, and
do its unfinished batches again: "oom" where it was killed while the kernel counts an
OOM kill in its cgroup, "any" whatever it died of, "off" never. Where a cgroup limits
the job, oom_score_adj of workers is raised, so that no trainer is killed before them.`,
		example: `"any"`, values: []string{"oom", "any", "off"},
		set: func(s *settings.Settings, v []string) error { s.Revive = event.Revive(v[0]); return nil },
	}, {
		name: "nofile", runOnly: true, group: group{title: groupWorkers},
		usage: "`N`: raise RLIMIT_NOFILE up to N where workers need it",
		about: `Where a DataLoader is about to send many tensors to workers started by spawn,
the loader hook raises the soft RLIMIT_NOFILE of that process to what it needs,
no further than this and its hard limit. At most 65536. Nothing else is changed.`,
		example: "65536", set: number(func(s *settings.Settings) *int { return &s.NoFile }, "a number of descriptors", 1, 1<<16, 65536),
	}, {
		name: "checkpoint-signal", runOnly: true, group: group{title: groupRequeues},
		usage: "`SIG`: ask for a checkpoint before a requeue",
		about: `The signal that asks the training for a checkpoint before a rule with the action
requeue puts the job back into the queue, as signal= does; USR2@rank0 asks rank 0
alone.`,
		example: `"USR2@rank0"`, set: setCheckpointSignal,
	}, {
		name: "checkpoint-file", runOnly: true, group: group{title: groupRequeues},
		usage: "`PATH`: file or directory that the checkpoint goes to",
		about: `Where that checkpoint goes: a file, or a directory into which it is renamed. The
wait is over once it was written and then left alone for 1 s; without this option,
once the command has ended, or after checkpoint-timeout.`,
		example: `"/scratch/me/model.pt"`, set: absPath(func(s *settings.Settings) *string { return &s.CheckpointFile }),
	}, {
		name: "checkpoint-timeout", def: "60s", runOnly: true, group: group{title: groupRequeues},
		usage:   "`DURATION`: how long to wait for it",
		about:   "How long to wait for the end of the checkpoint; 4m at most.",
		example: `"3m"`, set: duration(func(s *settings.Settings) *time.Duration { return &s.CheckpointTimeout }, 0, 4*time.Minute),
	}, {
		name: "max-requeues", def: "3", runOnly: true, group: group{title: groupRequeues},
		usage: "`N`: how often a job is requeued at most",
		about: `How often a job is requeued at most, counted by SLURM_RESTART_COUNT, which counts
every requeue of the job.`,
		example: "5", set: number(func(s *settings.Settings) *int { return &s.MaxRequeues }, "a number of requeues", 1, 1000, 3),
	}, {
		name: "record", def: "auto", group: group{title: groupRecords, short: true},
		usage: "`DIR`: where the record goes; none keeps nothing",
		about: `Where the full record of a run goes, for rsswarden report: a directory on a
disk of the node, 64 MiB a run at most, or "none" for neither record nor journal.
With a directory it is written from the start. "auto" writes once a rule has fired
or a minute has passed: under Slurm below $TMPDIR or /tmp, else $XDG_STATE_HOME.`,
		example: `"/tmp/records"`, set: setRecord,
		foreign: []string{"no-record none"},
	}, {
		name: "events", group: group{title: groupRecords, short: true},
		usage: "`FILE`: events as JSON lines",
		about: `Append every event to this file, as JSON lines. /dev/fd/3 works; a relative
name is looked for in the working directory of the job.`,
		example: `"events.jsonl"`, set: func(s *settings.Settings, v []string) error { s.Events = v[0]; return nil },
		foreign: []string{"log", "log-file", "output"},
	}, {
		name: alertOption, kind: config.List, group: group{title: groupRecords, short: true},
		usage: "`URL`: Alertmanager, webhook",
		about: `Where alerts go when a rung is crossed, and when it is left: Alertmanager
(alertmanager+URL, or a URL without a path) or a webhook (webhook+URL, or a URL
with one). In the environment: one a line. A URL in a file or in the environment
may have a user and password or a query, one on the command line may not.`,
		example: `["http://alertmanager:9093"]`, set: setAlerts,
	}, {
		name: "alert-token-file", group: group{title: groupRecords},
		usage: "`FILE`: bearer token for --alert",
		about: `A file with the token to send as "Authorization: Bearer TOKEN". The variable
RSSWARDEN_ALERT_TOKEN may have it instead.`,
		example: `"/home/me/.alert-token"`, set: absPath(func(s *settings.Settings) *string { return &s.AlertTokenFile }),
	}, {
		name: "alert-comment", kind: config.Truth, runOnly: true, group: group{title: groupRecords},
		usage:   "write warnings into the Slurm job's comment",
		about:   `Append a few words to the job's comment at a warning and at the end.`,
		example: "true", set: truth(func(s *settings.Settings) *bool { return &s.AlertComment }),
	}, {
		name: "textfile", group: group{title: groupRecords},
		usage: "`DIR`: metrics for node_exporter",
		about: `A directory that node_exporter reads (--collector.textfile.directory): one file of
metrics for the run, written each 15 s and at each decision, removed at the end.`,
		example: `"/var/lib/prometheus/rsswarden"`, set: absPath(func(s *settings.Settings) *string { return &s.Textfile }),
	}, {
		name: "interval", def: "1s", group: group{title: groupAdvanced},
		usage: "`DURATION`: longest pause between two samples",
		about: `Longest pause between two samples. Near a limit pauses are much shorter; up to 5 times as
long, 5s at most, where nothing has grown for a minute and half of each limit is free.`,
		example: `"500ms"`, set: duration(func(s *settings.Settings) *time.Duration { return &s.Interval }, 2*time.Millisecond, time.Hour),
		foreign: []string{"delay", "every", "period", "poll"},
	}, {
		name: "log-format", def: "console", group: group{title: groupAdvanced},
		usage:   "`FORM`: console, json",
		about:   `Form of our lines on stderr: "console", or "json" for one object a line.`,
		example: `"json"`, values: []string{"console", "json"},
		set:     func(s *settings.Settings, v []string) error { s.LogFormat = v[0]; return nil },
		foreign: []string{"json json"},
	}, {
		name: colorOption, def: colorAuto, group: group{title: groupAdvanced},
		usage:   "`WHEN`: auto, always, never",
		about:   `Colour in what is printed for people: "auto" (on a terminal), "always" or "never".`,
		example: `"never"`, values: []string{colorAuto, colorAlways, colorNever},
		set:     func(s *settings.Settings, v []string) error { s.Color = v[0]; return nil },
		foreign: []string{"colour", "colors", "no-color " + colorNever, "no-colour " + colorNever},
	}, {
		name: "quiet", kind: config.Truth, group: group{title: groupAdvanced, short: true},
		usage:   "nothing on stderr",
		about:   "Write nothing to stderr.",
		example: "true", set: truth(func(s *settings.Settings) *bool { return &s.Quiet }),
		foreign: []string{"silent"},
	},
}

// configOption names a file with options; no file can set it.
var configOption = option{name: "config", group: group{title: groupAdvanced}, usage: "`FILE`: read options from FILE, in TOML: limit = \"3G\""}

const (
	alertOption = "alert"
	colorOption = "color"
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
	alertToken  = "alert-token" // a variable only: everybody may read a command line
	// alertProgram carries alerts over the network, for which this program links nothing.
	alertProgram = "rsswardend"
	maxReceivers = 8
	// maxValue bounds the value of an option, in bytes: the holder hands all options to
	// the watcher in one message of bounded size.
	maxValue = 4 << 10
)

func optionNamed(name string) option {
	if i := slices.IndexFunc(options, func(o option) bool { return o.name == name }); i >= 0 {
		return options[i]
	}
	return option{}
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

// apply checks the values and puts them into the settings.
func (o option) apply(s *settings.Settings, values []string) error {
	size := 0
	for _, v := range values {
		if strings.ContainsRune(v, 0) {
			return wrongf("leave it out", " has a NUL byte in it")
		}
		size += len(v)
	}
	switch {
	case size > maxValue:
		return wrongf("say it shorter; a longer command for exec= goes into a script", " is longer than %d KiB", maxValue>>10)
	case o.kind == config.Text && o.def == "" && values[0] == "":
		return nil
	case len(o.values) > 0:
		if err := oneOf(values[0], o.values...); err != nil {
			return err
		}
	}
	return o.set(s, values)
}

// watchFlags are the flags of run, or of attach.
func watchFlags(run bool) (all []cli.Flag) {
	for _, o := range append(slices.Clone(options), configOption) {
		if o.runOnly && !run {
			continue
		}
		switch hidden := !o.group.short; o.kind {
		case config.Truth:
			all = append(all, &cli.BoolFlag{Name: o.name, Usage: o.usage, Category: o.group.title, Hidden: hidden})
		case config.List:
			all = append(all, &cli.StringSliceFlag{Name: o.name, Usage: o.usage, Category: o.group.title, Hidden: hidden})
		default:
			all = append(all, &cli.StringFlag{Name: o.name, Value: o.def, Usage: o.usage, Category: o.group.title, Hidden: hidden})
		}
	}
	return append(all, &cli.BoolFlag{Name: "help-all", Usage: "print all options, by groups"})
}

// valueError says what is wrong with a value. The caller puts the option in front, as
// the user wrote it.
type valueError struct {
	says, hint string
}

func (e *valueError) Error() string { return e.says }

func wrongf(hint, format string, args ...any) error {
	return &valueError{says: fmt.Sprintf(format, args...), hint: hint}
}

func truth(to func(*settings.Settings) *bool) setter {
	return func(s *settings.Settings, v []string) error {
		b, err := strconv.ParseBool(v[0])
		if err != nil && v[0] != "" {
			return wrongf("write true or false", " %q is neither true nor false", v[0])
		}
		*to(s) = b
		return nil
	}
}

// absPath sets an absolute path.
func absPath(to func(*settings.Settings) *string) setter {
	return func(s *settings.Settings, v []string) (err error) {
		if *to(s), err = filepath.Abs(v[0]); err != nil {
			return wrongf("give its full path", " %q: %v", v[0], err)
		}
		return nil
	}
}

func number(to func(*settings.Settings) *int, what string, least, most, such int) setter {
	return func(s *settings.Settings, v []string) error {
		n, err := strconv.Atoi(v[0])
		if err != nil || n < least || n > most {
			return wrongf(fmt.Sprintf("give a number from %d to %d, such as %d", least, most, such), " %q is not %s", v[0], what)
		}
		*to(s) = n
		return nil
	}
}

func duration(to func(*settings.Settings) *time.Duration, least, most time.Duration) setter {
	return func(s *settings.Settings, v []string) error { return setDuration(to(s), v[0], least, most) }
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

func setLimit(s *settings.Settings, v []string) (err error) {
	const hint = "give a size as in sbatch --mem, such as 3G, or a share of the limit found, above 0% and at most 100%, such as 90%"
	if share, ok := strings.CutSuffix(v[0], "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(f > 0 && f <= 100) {
			return wrongf(hint, " %q is not a share of a limit", v[0])
		}
		s.LimitShare = f / 100
		return nil
	}
	if s.Limit, err = rss.ParseBytes(v[0]); err != nil || s.Limit == 0 {
		return wrongf(hint, " %q is not a size", v[0])
	}
	return nil
}

func setRecord(s *settings.Settings, v []string) error {
	switch s.Record = v[0]; v[0] {
	case "":
		s.Record = settings.RecordAuto
	case settings.RecordAuto, settings.RecordNone:
	case "off", "no", "false":
		return wrongf("write none for neither record nor journal, or ./"+v[0]+" for a directory of that name", " %q is not a place", v[0])
	default:
		return absPath(func(s *settings.Settings) *string { return &s.Record })(s, v)
	}
	return nil
}

// setLadder sets the rules: the defaults and what --at adds.
func setLadder(s *settings.Settings, at []string) error {
	rules, err := policy.Ladder(at)
	if err != nil {
		hint := "a rule looks like 85%:trim"
		var bad *event.RuleError
		if errors.As(err, &bad) {
			hint = bad.Hint
			if guess := suggestRule(bad.Rule); guess != "" {
				hint = guess
			}
		}
		return wrongf(hint, ": %v", err)
	}
	s.Rules = rules
	return nil
}

func setWorkerSignal(s *settings.Settings, v []string) error {
	n, err := event.ParseSignal(v[0])
	if err != nil {
		return wrongf("name a signal, such as TERM or USR1", ": %v", err)
	}
	s.WorkerSignal = int(n)
	return nil
}

func setWorkerMatch(s *settings.Settings, v []string) error {
	if _, err := regexp.Compile(v[0]); err != nil {
		return wrongf("see https://pkg.go.dev/regexp/syntax; such as 'my_pool worker'", ": %v", err)
	}
	s.WorkerMatch = v[0]
	return nil
}

// setAlerts sets the receivers. Errors give the number of a URL instead of the URL,
// which may hold a password.
func setAlerts(s *settings.Settings, values []string) error {
	const hint = "write it as http://alertmanager:9093, alertmanager+https://HOST/PATH or webhook+https://HOST/PATH"
	for i, v := range values {
		t, err := alert.ParseTarget(v)
		if err != nil {
			which := "its value"
			if len(values) > 1 {
				which = fmt.Sprintf("value %d of %d", i+1, len(values))
			}
			return wrongf(hint, ": %s %v", which, err)
		}
		if !slices.Contains(s.Alerts, t) {
			s.Alerts = append(s.Alerts, t)
		}
	}
	if len(s.Alerts) > maxReceivers {
		return wrongf("let Alertmanager tell the others", " has %d receivers, and %d are the most", len(s.Alerts), maxReceivers)
	}
	return nil
}

func setCheckpointSignal(s *settings.Settings, v []string) error {
	r, err := event.AskBySignal(v[0])
	s.CheckpointSignal = r.Arg
	return wrongSignal(err)
}

// wrongSignal makes an error about a checkpoint signal a valueError.
func wrongSignal(err error) error {
	var bad *event.RuleError
	if errors.As(err, &bad) {
		return wrongf(bad.Hint, " %v", bad)
	}
	return err
}

func oneOf(v string, values ...string) error {
	if slices.Contains(values, v) {
		return nil
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
