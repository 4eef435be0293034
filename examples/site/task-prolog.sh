#!/bin/sh
# TaskProlog of slurm.conf: a watcher beside each task, without a plugin and without a word from
# the user. What rsswarden prints, export lines, is for slurmstepd; whatever fails, the task runs.
# The same as TaskEpilog: slurmstepd leaves that watcher the time to write the end.
bin=/usr/bin/rsswarden
# Steps with more than 64 tasks on a node are not watched: no program is started for them.
[ "${SLURM_LOCALID:-0}" -ge 64 ] || [ ! -x $bin ] || $bin task-prolog 2>/dev/null
exit 0
