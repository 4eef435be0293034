package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/config"
)

const referenceHead = `# Options of rsswarden: for one job as a file of yours,
#
#     rsswarden run --config rsswarden.toml -- python train.py
#
# or for every job of a site as /etc/rsswarden.toml. A line that begins with "#"
# and a name is an example: take the "#" away to put it in force. Keys are named
# as the flags are. Text stands in quotes; numbers, true and false do not.
#
# What is set in several places comes from the first of these: the flag, the
# environment (RSSWARDEN_LIMIT=3G), the file of --config, /etc/rsswarden.toml,
# the default. Lists are taken whole. The start event (--events FILE) tells of
# every option where its value came from. RSSWARDEN=off reads none of this.
#
# A mistake in a file of yours is an error, and nothing is started. A mistake in
# /etc/rsswarden.toml is a warning, and the job runs with the rest of it; that
# file must belong to root, and nobody else may be able to write it.
`

const referenceLock = `
# In /etc/rsswarden.toml only: users cannot change these. A locked option has
# the value of that file, or its default where the file does not set it. A job
# that asks for something else runs, and is told that it does not get it.
#lock = ["trim-private", "worker-signal"]
`

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

// configurationExample describes every option, in the form of a configuration file.
func configurationExample() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, o := range slices.Concat(watchOptions, runOptions) {
		fmt.Fprintf(&b, "\n# %s\n", strings.ReplaceAll(about[o.name], "\n", "\n# "))
		fmt.Fprintf(&b, "# Flag %s, environment %s, default %s.\n", o.flag(), variableOf(o.name), o.shownDefault())
		fmt.Fprintf(&b, "#%s = %s\n", o.name, o.example)
	}
	b.WriteString(referenceLock)
	return b.String()
}

// flag is an option as it stands on the command line.
func (o option) flag() string { return strings.TrimSpace("--" + o.name + " " + o.arg) }

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
