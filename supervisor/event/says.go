package event

// This file has what manual and reference say of limits and actions, a sentence each.

var limitSays = map[LimitName]string{
	LimitCgroup:   "Of a cgroup: the kernel's OOM killer enforces it.",
	LimitThrottle: "memory.high below memory.max: what is above it is slowed down, not killed.",
	LimitSlurm:    "Of the step, by slurmstepd, where the site has OverMemoryKill; of all steps of the job on this node, by slurmd, from Slurm 26.05.3 on.",
	LimitUser:     "That of --limit, by our own rules.",
	LimitNode:     "The memory and swap of the node, where no cgroup limits.",
	LimitCommit:   "What all processes of the node have asked for, used or not: CommitLimit, where vm.overcommit_memory is 2.",
	LimitSHM:      "The size of /dev/shm; SIGBUS beyond it.",
	LimitMaps:     "Memory mappings of a process: vm.max_map_count.",
	LimitFDs:      "Descriptors of a process: RLIMIT_NOFILE.",
	LimitTasks:    "Processes and threads: pids.max, RLIMIT_NPROC, kernel.threads-max.",
	LimitAS:       "Address space of a process: RLIMIT_AS.",
	LimitMemlock:  "Locked memory of a process: RLIMIT_MEMLOCK.",
	LimitTime:     "The job's end, by Slurm's time limit.",
}

// Says is what the limit is, for people.
func (n LimitName) Says() string { return limitSays[n] }

var actionSays = map[Action]struct{ form, says string }{
	ActionWarn:     {"warn", "Say so on stderr, and whom to tell by --alert."},
	ActionTrim:     {"trim", "Workers drop mapped file pages, which stay in the page cache."},
	ActionTrimDrop: {"trim+drop", "Of former versions: trim, and the pages left the page cache."},
	ActionRecycle:  {"recycle", "A loader worker is replaced by a fresh one, and no batch is lost."},
	ActionGC:       {"gc", "Trainers and workers collect garbage and give free memory back."},
	ActionSignal:   {"signal=SIG", "Trainers that catch SIG are sent it; SIG@rank0 asks rank 0 alone."},
	ActionExec:     {"exec=COMMAND", "A program of yours is told, on its standard input and in RSSWARDEN_ variables."},
	ActionRequeue:  {"requeue, requeue=MORE", "The job goes back into the queue and starts again with more memory: requeue=+50%."},
	ActionStop:     {"stop", "TERM, and KILL after --grace."},
}

// Form is how the action is written in a rule: "signal=SIG".
func (a Action) Form() string { return actionSays[a].form }

// Says is what the action does, for people.
func (a Action) Says() string { return actionSays[a].says }
