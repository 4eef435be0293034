// Package nodejobs finds the Slurm jobs and steps of a node in the cgroup tree, and
// reads what they are charged, what of it reclaim cannot take back, their limits,
// the processes that the OOM killer ended, and when a limit is met if things go on as
// they do. It reads files of cgroups, and the resident memory of processes where
// there is no memory cgroup, as anybody may: no ptrace, no environment, no command line but
// slurmstepd's, no file of a user. Where the kernel tells of OOM kills as they happen, it is asked to.
//
// # Where jobs are
//
// On v1 below slurm or slurm_NODE of a controller's hierarchy, as
// uid_N/job_N/step_X/task_N. On v2 below slurmstepd.scope or NODE_slurmstepd.scope of
// whatever slice, as job_N/step_X/user/task_N, where the step's limit and its
// processes are in user, and slurmstepd itself is beside it. From Slurm 26.05 on a job's
// directory has the job's SLUID for its name (CgroupJobIdPaths=yes brings the number back,
// 26.05.2). The title of slurmstepd, which is in step_X/slurm, tells the number: see
// [slurm.JobOfSLUID].
//
// Where the memory controller has no directory of a job, that of another controller
// (freezer, cpuset, …) tells its processes alone: their number and the sum of their RSS.
// There is no limit to tell then, and none is told. With neither proctrack/cgroup nor
// task/cgroup there is nothing to be seen.
//
// # What a look costs
//
// A directory is listed again only when its number of links has changed, which
// is that of its subdirectories and two, or when one of them is gone: the kernel
// does not touch a cgroup's modification time when one is made below it. The counters
// of jobs and steps are read by one pread of a kept descriptor each, as far as there are
// descriptors. cgroup.procs is opened again, since a kept descriptor of v1 never shows
// new members. memory.stat, which costs ten times a counter, and cgroup.procs are left as
// they were while the charge stands still, and far from the limit for two looks of three
// while it moves by little.
//
// # OOM kills
//
// v1 counts a kill in the task where the victim was, and v2 up to the job; either count is
// gone with its directory. After [Node.Listen] the kernel tells of jobs and steps that come
// and go by inotify, and of kills by inotify on memory.events (v2, as anybody may) or an
// eventfd for each step (v1, as root), so that the counters are read at once, and a kill
// whose counters are gone already is known all the same: [Source] says how. An eventfd
// tells before the kill, and once more when the directory is gone.
//
// A job or step that begins or ends while it is read is normal: it is left out, or
// told with what was read.
package nodejobs
