package main

const appUsage = "run a training job inside its memory limit"

const manDescription = `rsswarden run starts a command, watches its whole process tree against every
limit that can end it, warns early, has loader workers give memory back, and ends as the command
ended. Nothing of it needs a privilege. Should rsswarden itself fail, the command runs on as if it
had been started alone.

The other commands ask a run that stands (status, top), have it act now (recycle, trim,
checkpoint), watch what runs already (attach), tell what can end a process (limits), whether
everything works here (doctor), and what became of a run (report, replay).`

const manPrecedence = `What is set in several places comes from the first of these: the option, the environment, the file
of --config, the site's file, the default.`

const manRules = `A rule of --at is [LIMIT ]WHEN:ACTION. WHEN is N% of the limit, free<SIZE when less than
SIZE is left of it, or eta<DURATION when it is forecast to be reached in that time. Without LIMIT it
is for each limit on memory. The limits:`

const manEvents = `--events FILE appends one JSON object a line; the field event names it. Sizes are in bytes and
their names end in _bytes, durations are in seconds and their names end in _s.`

var variablesTold = [][2]string{
	{"RSSWARDEN_NAME", "Each option of run by its name in capitals, with _ for -: RSSWARDEN_LIMIT=3G, RSSWARDEN_DRY_RUN=true. Of an option that\nmay be repeated, one value a line."},
	{"RSSWARDEN", "off: run starts the command and nothing else."},
	{"RSSWARDEN_ALERT_TOKEN", "The token for --alert, in the place of --alert-token-file."},
	{"RSSWARDEN_RUNTIME", "Where files of running watches are, the same for all ranks of a job; else TMPDIR, else /tmp."},
	{"RSSWARDEN_EVENT", "Given to the command of an exec= rule."},
	{"XDG_STATE_HOME, XDG_CACHE_HOME", "Where records outside Slurm are, and the files of the loader hook."},
	{"NO_COLOR, TERM, COLUMNS, LC_ALL", "top: no colour where NO_COLOR is set or TERM is dumb; the width of --once; whether UTF-8 may be shown."},
	{"SLURM_JOB_ID, SLURM_PROCID, …", "Which job, step and rank this is."},
}

var filesTold = [][2]string{
	{"/etc/rsswarden.toml", "Options for every job of a site, and which of them users may not change."},
	{"$TMPDIR/rsswarden-UID/", "Of running watches: sockets, and under Slurm the records. /tmp where TMPDIR is not set."},
	{".rsswarden/", "In the directory a job was submitted from: the journals of its runs."},
	{"$XDG_STATE_HOME/rsswarden/", "Records and journals outside Slurm; ~/.local/state where XDG_STATE_HOME is not set."},
	{"$XDG_CACHE_HOME/rsswarden/", "The loader hook, and verdicts on PyTorch; ~/.cache where XDG_CACHE_HOME is not set."},
	{"/var/cache/rsswarden/torch/", "Verdicts on PyTorch of root's doctor --torch, for all users of the machine."},
}
