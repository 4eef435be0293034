package slurm

// What sacct and scontrol of Slurm 22.05.8 printed of real jobs: names of nodes
// and folders were changed, and of scontrol's lines the middle was left out.
const (
	sacctCompleted = `1|1|COMPLETED|None|0:0|0:0|102400K||2026-11-22T00:51:32|2026-11-22T00:51:34|01:00:00
1.batch|1.batch|COMPLETED||0:0|||220K|2026-11-22T00:51:32|2026-11-22T00:51:34|
`
	sacctNeverRan = `3|3|CANCELLED by 65534|None|0:0|0:0|102400K||2026-11-22T00:51:32|2026-11-22T00:51:32|Partition_Limit
`
	sacctTimeout = `4|4|TIMEOUT|None|0:0|0:0|102400K||2026-11-22T00:51:33|2026-11-22T00:52:59|00:01:00
4.batch|4.batch|CANCELLED||0:15|||220K|2026-11-22T00:51:33|2026-11-22T00:53:00|
`
	sacctOOM = `5|5|OUT_OF_MEMORY|None|0:125|0:0|102400K||2026-11-22T00:51:35|2026-11-22T00:51:35|01:00:00
5.batch|5.batch|OUT_OF_MEMORY||0:125|||0|2026-11-22T00:51:35|2026-11-22T00:51:35|
`
	sacctSteps = `6|6|FAILED|None|0:11|0:125|102400K||2026-11-22T00:51:36|2026-11-22T00:51:39|01:00:00
6.batch|6.batch|CANCELLED||0:11|||3660K|2026-11-22T00:51:36|2026-11-22T00:51:39|
6.0|6.0|COMPLETED||0:0|||23276K|2026-11-22T00:51:36|2026-11-22T00:51:39|
6.1|6.1|FAILED||4:0|||0|2026-11-22T00:51:39|2026-11-22T00:51:39|
6.2|6.2|OUT_OF_MEMORY||0:125|||0|2026-11-22T00:51:39|2026-11-22T00:51:39|
`
	sacctArray = `9|7_0|COMPLETED|None|0:0|0:0|102400K||2026-11-22T00:51:40|2026-11-22T00:51:40|01:00:00
9.batch|7_0.batch|COMPLETED||0:0|||0|2026-11-22T00:51:40|2026-11-22T00:51:40|
7|7_1|FAILED|None|1:0|0:0|102400K||2026-11-22T00:51:41|2026-11-22T00:51:41|01:00:00
7.batch|7_1.batch|FAILED||1:0|||0|2026-11-22T00:51:41|2026-11-22T00:51:41|
7|7_1|FAILED|None|1:0|0:0|102400K||2026-11-22T00:51:41|2026-11-22T00:51:41|01:00:00
7.batch|7_1.batch|FAILED||1:0|||0|2026-11-22T00:51:41|2026-11-22T00:51:41|
`
	sacctOverMemory = `10|10|FAILED|None|0:9|0:0|102400K||2026-11-22T00:55:39|2026-11-22T00:55:41|01:00:00
10.batch|10.batch|CANCELLED by 0||0:9|||931340K|2026-11-22T00:55:39|2026-11-22T00:55:41|
`
	sacctCancelled = `11|11|CANCELLED by 65534|None|0:0|0:0|102400K||2026-11-22T00:55:39|2026-11-22T00:55:41|01:00:00
11.batch|11.batch|CANCELLED||0:15|||3276K|2026-11-22T00:55:39|2026-11-22T00:55:42|
`
	sacctStepKilled = `12|12|FAILED|None|9:0|0:9|102400K||2026-11-22T00:55:43|2026-11-22T00:55:47|01:00:00
12.batch|12.batch|FAILED||9:0|||10764K|2026-11-22T00:55:43|2026-11-22T00:55:47|
12.0|12.0|CANCELLED by 0||0:9|||212936K|2026-11-22T00:55:43|2026-11-22T00:55:44|
12.1|12.1|CANCELLED by 65534||0:9|||2864K|2026-11-22T00:55:44|2026-11-22T00:55:47|
`
	showFailed = `JobId=2 JobName=x JobState=COMPLETED UserId=1 UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0 RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:47 EligibleTime=2026-11-22T00:44:47 AccrueTime=2026-11-22T00:44:47 StartTime=2026-11-22T00:44:48 EndTime=2026-11-22T00:44:48 Deadline=N/A MinCPUsNode=1 MinMemoryCPU=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job2/script WorkDir=/home/u/job2/work StdErr=/home/u/job2/err StdIn=/dev/null StdOut=/home/u/job2/out Power=
`
	showOOM = `JobId=4 JobName=script UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901756 Nice=0 Account=(null) QOS=(null) JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:125 RunTime=00:00:01 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:49 EligibleTime=2026-11-22T00:44:49 AccrueTime=2026-11-22T00:44:49 StartTime=2026-11-22T00:44:50 EndTime=2026-11-22T00:44:51 Deadline=N/A MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job4/script WorkDir=/home/u/job4/work StdErr=/home/u/job4/err StdIn=/dev/null StdOut=/home/u/job4/out Power=
`
	showArray = `JobId=6 ArrayJobId=6 ArrayTaskId=2 JobName=script UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901754 Nice=0 Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=2:0 RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:49 EligibleTime=2026-11-22T00:44:50 AccrueTime=2026-11-22T00:44:50 StartTime=2026-11-22T00:44:53 EndTime=2026-11-22T00:44:53 Deadline=N/A MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job6/script WorkDir=/home/u/job6/work StdErr=/home/u/job6/err StdIn=/dev/null StdOut=/home/u/job6/out Power= 
JobId=8 ArrayJobId=6 ArrayTaskId=1 JobName=script UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901754 Nice=0 Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0 RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:49 EligibleTime=2026-11-22T00:44:50 AccrueTime=2026-11-22T00:44:50 StartTime=2026-11-22T00:44:53 EndTime=2026-11-22T00:44:53 Deadline=N/A MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job6/script WorkDir=/home/u/job6/work StdErr=/home/u/job6/err StdIn=/dev/null StdOut=/home/u/job6/out Power= 
JobId=7 ArrayJobId=6 ArrayTaskId=0 JobName=script UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901754 Nice=0 Account=(null) QOS=(null) JobState=COMPLETED Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:49 EligibleTime=2026-11-22T00:44:50 AccrueTime=2026-11-22T00:44:50 StartTime=2026-11-22T00:44:52 EndTime=2026-11-22T00:44:52 Deadline=N/A MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job6/script WorkDir=/home/u/job6/work StdErr=/home/u/job6/err StdIn=/dev/null StdOut=/home/u/job6/out Power=
`
	showTimeout = `JobId=9 JobName=script UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901753 Nice=0 Account=(null) QOS=(null) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15 RunTime=00:01:19 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:56 EligibleTime=2026-11-22T00:44:56 AccrueTime=2026-11-22T00:44:56 StartTime=2026-11-22T00:44:57 EndTime=2026-11-22T00:46:16 Deadline=N/A MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/job7/script WorkDir=/home/u/job7/work StdErr=/home/u/job7/err StdIn=/dev/null StdOut=/home/u/job7/out Power=
`
)
