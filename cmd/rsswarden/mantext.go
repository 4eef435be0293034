package main

import "github.com/rsswarden/rsswarden/supervisor/event"

const appUsage = "run a training job inside its memory limit"

const manDescription = `rsswarden run starts a command, watches its whole process tree against every
limit that can end it, warns early, has loader workers give memory back, and ends as the command
ended. Nothing of it needs a privilege. Should rsswarden itself fail, the command runs on as if it
had been started alone.

The other commands ask a run that stands (status, top), have it act now (recycle, trim,
checkpoint), watch what runs already (attach), tell what can end a process (limits), whether
everything works here (doctor), and what became of a run (report, replay).

What is set in several places comes from the first of these: the option, the environment, the file
of --config, the site's file, the default.`

const manRules = `A rule of --at is [LIMIT ]WHEN:ACTION. WHEN is N% of the limit, free<SIZE when less than
SIZE is left of it, or eta<DURATION when it is forecast to be reached in that time. Without LIMIT it
is for each limit on memory. The limits:`

var limitsTold = []struct {
	name event.LimitName
	says string
}{
	{event.LimitCgroup, "Of a cgroup: the kernel's OOM killer enforces it."},
	{event.LimitThrottle, "memory.high below memory.max: what is above it is slowed down, not killed."},
	{event.LimitSlurm, "Of the step, by slurmstepd, where the site has OverMemoryKill."},
	{event.LimitUser, "That of --limit, by our own rules."},
	{event.LimitNode, "The memory of the node, where no cgroup limits."},
	{event.LimitSHM, "The size of /dev/shm; SIGBUS beyond it."},
	{event.LimitMaps, "Memory mappings of a process: vm.max_map_count."},
	{event.LimitFDs, "Descriptors of a process: RLIMIT_NOFILE."},
	{event.LimitTasks, "Processes and threads: pids.max, RLIMIT_NPROC, kernel.threads-max."},
	{event.LimitAS, "Address space of a process: RLIMIT_AS."},
	{event.LimitMemlock, "Locked memory of a process: RLIMIT_MEMLOCK."},
	{event.LimitTime, "The job's end, by Slurm's time limit."},
}

var actionsTold = []struct {
	action     event.Action
	form, says string
}{
	{event.ActionWarn, "warn", "Say so on stderr, and whom to tell by --alert."},
	{event.ActionTrim, "trim", "Workers drop mapped file pages, which stay in the page cache."},
	{event.ActionTrimDrop, "trim+drop", "The same of all processes, and the pages leave the page cache; they are read again."},
	{event.ActionRecycle, "recycle", "A loader worker is replaced by a fresh one, and no batch is lost."},
	{event.ActionGC, "gc", "Trainers and workers collect garbage and give free memory back."},
	{event.ActionSignal, "signal=SIG", "Trainers that catch SIG are sent it; SIG@rank0 asks rank 0 alone."},
	{event.ActionExec, "exec=COMMAND", "A program of yours is told, on its standard input and in RSSWARDEN_ variables."},
	{event.ActionRequeue, "requeue, requeue=MORE", "The job goes back into the queue and starts again with more memory: requeue=+50%."},
	{event.ActionStop, "stop", "TERM, and KILL after --grace."},
}

const manEvents = `--events FILE appends one JSON object a line; the field event names it. Sizes are in bytes and
their names end in _bytes, durations are in seconds and their names end in _s.`

var eventsTold = []struct {
	name event.Name
	says string
}{
	{event.NameStart, "The watch began: command, options and where each came from, limits."},
	{event.NameLimit, "A limit was found or has changed."},
	{event.NameSample, "What the limits stand at, at most one an interval."},
	{event.NameDecision, "A rule fired."},
	{event.NameOutcome, "What a decision brought."},
	{event.NameLoader, "The loader hook said something."},
	{event.NameDiagnosis, "Why something grows, and what to change."},
	{event.NameCure, "Something was changed before it could go wrong, by the user's wish."},
	{event.NameRank, "A rank of the job on this node came or ended, or leads."},
	{event.NameFault, "A part of rsswarden stopped working; the command runs on."},
	{event.NameSignal, "A signal reached rsswarden."},
	{event.NameHelp, "What the ladder was told of an action; in the record alone."},
	{event.NameHandover, "What was taken over from the leader before; in the record alone."},
	{event.NameExit, "The command has ended: status, peaks, verdict."},
}

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
	{"$XDG_CACHE_HOME/rsswarden/", "The loader hook; ~/.cache where XDG_CACHE_HOME is not set."},
}
