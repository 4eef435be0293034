// Package slurm knows what Slurm says about the job a process is in: its ids,
// the memory it was given, and what slurmstepd does on this node when the job
// takes more.
//
// It reads the environment, RLIMIT_RSS and Slurm's own configuration files; it
// asks scontrol only for what the files leave open, through a function its
// caller hands in. Every answer says where it was read. The environment may be
// stale and the configuration may be unreadable, so every answer can also be
// that it is not known: the package never guesses.
//
// The package depends on the standard library only.
//
// # What slurmstepd sums
//
// With OverMemoryKill in JobAcctGatherParams, slurmstepd adds up the memory of
// its own step and compares the sum with the step's limit, which is that of
// srun --mem, else the job's. Over it, the step is killed by SIGKILL at once,
// with no SIGTERM before: JobState=FAILED Reason=JobLaunchFailure ExitCode=0:9
// where it is the batch step.
//
// This is what was found with Slurm 22.05.8, jobacct_gather/linux and cgroup
// v1, by comparing the log line "memory used:" of slurmstepd with /proc read
// before and after it. The tests of slurmtest run it again. In the job of these
// numbers slurmstepd logged, and the candidates were, in bytes:
//
//	mode            slurmstepd     tree RSS       tree PSS       tree RSS−shared  whole step RSS
//	linux           195,948,544    = 195,948,544                                  244,047,872
//	linux-pss       131,447,808    194,371,584    = 131,447,808
//	linux-noshared   85,716,992    195,080,192    131,401,728    = 85,716,992
//	cgroup-kill     127,488,000    193,994,752                   84,668,416       total_rss of task_0: = 127,488,000
//
// The tree is the task, a child of slurmstepd, and its descendants by parent
// PID:
//
//	process                                          linux, -pss, -noshared   cgroup-kill
//	the batch shell, or what it was replaced by      counted                  counted
//	rsswarden's holder and watcher                   counted                  counted
//	a child; a child in a session of its own         counted                  counted
//	threads                                          once, with the process   once
//	an orphan adopted by init (double fork)          not counted              counted
//	an orphan adopted by a subreaper in the tree     counted                  counted
//	a zombie                                         0                        0
//	a child that has ended                           no more                  no more
//	memory given back                                no more: it is no peak   no more
//	srun in a batch script                           in the batch step        in the batch step
//	the tasks srun started on this node              all, in their own step   all, in their own step
//	slurmstepd itself                                not counted              not counted
//
// What of a process is counted:
//
//	linux            RSS, field 24 of /proc/PID/stat: a shared page once for each process
//	linux, UsePss    Pss of /proc/PID/smaps_rollup, where that is less than RSS
//	linux, NoShared  resident less shared of /proc/PID/statm: neither mapped files nor shared memory
//	cgroup           total_rss of memory.stat of the cgroups of the tasks: anonymous memory only
//
// UsePss and NoShared together keep slurmd from starting.
//
// When: as each task starts, before its program is executed; then every
// JobAcctGatherFrequency, counted from the start of slurmstepd; as each task
// ends; and each time somebody asks for the step's use: sstat, or slurmd when
// slurmctld pings it. Each of these compares, and kills. So a job may die
// between two regular polls, and with task=0 as well. What happens between two
// polls is not seen. --acctg-freq makes polls more frequent than the site's;
// Slurm refuses 0 and longer times where memory is limited. Of the two, sbatch
// alone leaves it in the environment, as SLURM_ACCTG_FREQ.
//
// The sum of all steps is compared with the job's limit by slurmd, when slurmctld pings it
// (SlurmdTimeout/3 to 2/3), at each registration and health check: the number of each step
// rounded down to MiB, and 1 MiB at least. The limit is the most job memory that a launch on
// this node has named; a step's own --mem plays no part. From 20.11 to 26.05.2 it then says
// "Exceeded job memory limit" on the job's stderr and asks slurmctld to kill a job that does
// not exist, again at each ping: the job runs on. From 26.05.3 on (commit 376311308e)
// slurmctld cancels the whole job, as scancel does: CONT, TERM, and KILL after KillWait;
// JobState=CANCELLED Reason=None ExitCode=0:15, or 0:0 where the script handles TERM. 26.05.5
// forgets the limit when slurmd is restarted, until the next step of the job starts.
//
// VSizeFactor adds a limit on the virtual memory of the same processes, and
// gives every process the same amount as RLIMIT_AS. A Go program that finds
// less than it reserves at its start, which is about 1 GiB, does not start.
// With jobacct_gather/cgroup only RLIMIT_AS is set, nothing is summed.
//
// OverMemoryKill needs memory in SelectTypeParameters: without, a step has no
// limit to compare with, RLIMIT_RSS stays unlimited, and SLURM_MEM_PER_NODE
// means nothing. With ConstrainRAMSpace=yes and OverMemoryKill together
// slurmctld does not start ("two incompatible memory enforcement mechanisms").
//
// # The accountings in one table
//
// Each line was run with Slurm 22.05.8 on cgroup v1, on a node without swap, and
// is run again by the tests of cmd/rsswarden: a job of --mem=400 that grows past
// its limit, bare and under rsswarden.
//
//	configuration                               limit that kills         counter                       bare           rsswarden
//	OverMemoryKill, gather/linux                the step's, RLIMIT_RSS   sum of RSS                    FAILED 0:9     finishes
//	… UsePss                                    the same                 sum of PSS                    FAILED 0:9     finishes
//	… NoShared                                  the same                 sum of RSS less shared        FAILED 0:9     finishes
//	… VSizeFactor=400                           that, and 4 times that   sum of RSS, of virtual sizes  FAILED 0:9     finishes; unwatched below 64 GiB of virtual memory
//	OverMemoryKill, gather/cgroup               the step's, RLIMIT_RSS   total_rss of the tasks        FAILED 0:9     finishes
//	task/cgroup, ConstrainRAMSpace              400M, limit_in_bytes     charge less page cache        OUT_OF_MEMORY  finishes
//	… AllowedRAMSpace=150                       600M                     the same                      OUT_OF_MEMORY  finishes
//	… AllowedRAMSpace=50, of --mem=800          400M                     the same                      OUT_OF_MEMORY  finishes
//	… ConstrainSwapSpace, AllowedSwapSpace=50   400M, memsw 600M         the same                      OUT_OF_MEMORY  finishes
//	ConstrainSwapSpace alone, the same 50       600M, memsw 600M         the same                      OUT_OF_MEMORY  finishes
//	no memory in SelectTypeParameters           none, or all of the node the node's                    finishes       finishes, nothing decided
//	none of these                               the node                 MemTotal less MemAvailable    finishes       finishes, nothing decided
//	nothing to be read, and no kernel limit     RLIMIT_RSS, assumed      sum of RSS                    FAILED 0:9     finishes
//
// What grows there is memory of a worker's own, and pages of a file where RSS is
// summed. Pages that all workers of a pool have mapped are given back under
// UsePss only by the last that ends: recycling one frees nothing, and a pool
// that fills the limit with them in seconds is warned and killed.
//
// # Slurm 24.11
//
// Slurm 24.11.5, of Debian 13, was run on cgroup v1 (CgroupPlugin=cgroup/v1) by
// the same tests. It sums the same, of the same processes, at the same times,
// and compares with the same limits:
//
//	mode            slurmstepd     tree RSS       tree PSS       tree RSS−shared  whole step RSS
//	linux           205,078,528    = 205,078,528                                  254,603,264
//	linux-pss       135,844,864    204,849,152    = 135,844,864
//	linux-noshared   87,515,136    204,972,032    136,004,608    = 87,515,136
//	cgroup-kill     129,581,056    204,259,328                   86,462,464       total_rss of task_0: = 129,581,056
//
//	                                       22.05.8                          24.11.5
//	memory cgroup of a task                slurm_NODE/uid_U/job_J/step_S/task_T, in both
//	limit in it                            of step_S and job_J, in both
//	slurmstepd                             in step_S, with ConstrainRAMSpace, in both
//	RLIMIT_RSS                             the step's memory, in both
//	SLURM_MEM_PER_NODE, _CPU               the job's, in a step too, in both
//	… of srun with an allocation of its own  —                              set
//	SLURM_JOB_END_TIME                     —                                the job's end
//	SLURM_OOM_KILL_STEP                    —                                0 or 1: --oom-kill-step, which ends nothing on v1
//	CgroupPlugin, v1 and an empty v2       cgroup/v1 was run                cgroup/v1, and autodetect, which takes it
//	killed by slurmstepd                   FAILED JobLaunchFailure 0:9      FAILED RaisedSignal:9(Killed) 0:9
//	killed by the kernel                   OUT_OF_MEMORY 0:125, in both
//	said of that at the step's end         "Detected 1 oom-kill event(s)"   "Detected 1 oom_kill event"
//	sum of all steps over the job's limit  said, not killed, in both
//	task/none in scontrol show config      TaskPlugin = task/none           TaskPlugin = (null)
//	CgroupAutomount in cgroup.conf         read                             "is defunct", ignored
//
// # Slurm 26.05
//
// Slurm 26.05.5, of Debian sid, was run on cgroup v1 by the same tests, and on v2 in a guest
// (Linux 6.12). It sums the same of the same processes. What is new, where (read) marks what
// was read in its source and not run:
//
//	                                       24.11.5                          26.05.5
//	sum of all steps over the job's limit  said, not killed                 CANCELLED 0:15: CONT, TERM, KILL after KillWait
//	SLURM_STEP_ID in the batch step        —                                -5; -4 extern, -6 interactive (read)
//	SLURM_JOB_SLUID                        —                                set in tasks
//	directory of a job, cgroup v1          job_J                            job_J
//	… cgroup v2                            job_J                            the SLUID; job_J with CgroupJobIdPaths=yes (read)
//	commands that take a SLUID             —                                scontrol, squeue; scancel, sacct (read)
//	lines of Slurm's on a job's stderr     "slurmstepd-NODE: error: …"      "[2026-11-23T18:04:27.033] error: …"
//	memory of a running job                its owner may not change it      its owner may lower it, never raise it
//	killed by slurmstepd, by the kernel    the same in both
//
// A limit that scontrol update lowers is that of the cgroups within seconds. RLIMIT_RSS and
// SLURM_MEM_PER_NODE stay what they were, and so does what slurmd compares.
package slurm
