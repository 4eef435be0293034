package slurm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func clock(hms string) time.Time {
	t, _ := time.Parse(time.DateTime, "2026-11-22 "+hms)
	return t
}

func TestParseSacct(t *testing.T) {
	for _, test := range []struct {
		name, job, text string
		want            EndedJob
	}{
		{"completed", "1", sacctCompleted, EndedJob{
			ID: "1", State: "COMPLETED", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:32"), End: clock("00:51:34"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "1.batch", State: "COMPLETED", ExitCode: "0:0", MaxRSS: 220 << 10}},
		}},
		{"cancelled before it ran", "3", sacctNeverRan, EndedJob{
			ID: "3", State: "CANCELLED", By: "65534", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:32"), End: clock("00:51:32"), TimeLimit: "Partition_Limit",
		}},
		{"time limit: the step is called cancelled", "4", sacctTimeout, EndedJob{
			ID: "4", State: "TIMEOUT", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:33"), End: clock("00:52:59"), TimeLimit: "00:01:00",
			Steps: []EndedStep{{ID: "4.batch", State: "CANCELLED", ExitCode: "0:15", MaxRSS: 220 << 10}},
		}},
		{"killed by the kernel", "5", sacctOOM, EndedJob{
			ID: "5", State: "OUT_OF_MEMORY", ExitCode: "0:125", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:35"), End: clock("00:51:35"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "5.batch", State: "OUT_OF_MEMORY", ExitCode: "0:125"}},
		}},
		{"steps, the script dead by SIGSEGV", "6", sacctSteps, EndedJob{
			ID: "6", State: "FAILED", ExitCode: "0:11", DerivedExit: "0:125", ReqMem: "102400K",
			Start: clock("00:51:36"), End: clock("00:51:39"), TimeLimit: "01:00:00",
			Steps: []EndedStep{
				{ID: "6.batch", State: "CANCELLED", ExitCode: "0:11", MaxRSS: 3660 << 10},
				{ID: "6.0", State: "COMPLETED", ExitCode: "0:0", MaxRSS: 23276 << 10},
				{ID: "6.1", State: "FAILED", ExitCode: "4:0"},
				{ID: "6.2", State: "OUT_OF_MEMORY", ExitCode: "0:125"},
			},
		}},
		{"array task by its own number", "7", sacctArray, EndedJob{
			ID: "7", State: "FAILED", ExitCode: "1:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:41"), End: clock("00:51:41"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "7.batch", State: "FAILED", ExitCode: "1:0"}},
		}},
		{"array task by its index", "7_0", sacctArray, EndedJob{
			ID: "9", State: "COMPLETED", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:40"), End: clock("00:51:40"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "9.batch", State: "COMPLETED", ExitCode: "0:0"}},
		}},
		{"killed by slurmstepd", "10", sacctOverMemory, EndedJob{
			ID: "10", State: "FAILED", ExitCode: "0:9", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:55:39"), End: clock("00:55:41"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "10.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 931340 << 10}},
		}},
		{"cancelled", "11", sacctCancelled, EndedJob{
			ID: "11", State: "CANCELLED", By: "65534", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:55:39"), End: clock("00:55:41"), TimeLimit: "01:00:00",
			Steps: []EndedStep{{ID: "11.batch", State: "CANCELLED", ExitCode: "0:15", MaxRSS: 3276 << 10}},
		}},
		{"requeued: the last time it ran", "5", sacctOOM + strings.ReplaceAll(sacctCompleted, "1|1|", "5|5|"), EndedJob{
			ID: "5", State: "COMPLETED", ExitCode: "0:0", DerivedExit: "0:0", ReqMem: "102400K",
			Start: clock("00:51:32"), End: clock("00:51:34"), TimeLimit: "01:00:00",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseSacct([]byte(test.text), test.job, time.UTC)
			must(t, err)
			test.want.Source, test.want.Name, test.want.Dir = "sacct", "train.sh", "/home/u/work"
			if test.text != sacctNeverRan {
				test.want.NodeList = "n1"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got, err := ParseSacct([]byte(strings.TrimSuffix(sacctCompleted[:strings.Index(sacctCompleted, "\n")], "train.sh")+"a|b"), "1", time.UTC); err != nil || got.Name != "a|b" {
		t.Errorf("a name with a bar: %q, %v", got.Name, err)
	}
	if _, err := ParseSacct([]byte(sacctArray), "9999", time.UTC); !errors.Is(err, ErrNoJob) {
		t.Errorf("of a job that is not there: %v", err)
	}
	if _, err := ParseSacct(make([]byte, maxSaid+1), "1", time.UTC); err == nil {
		t.Error("an answer without end was read")
	}
}

func TestParseShowJob(t *testing.T) {
	for _, test := range []struct {
		name, job, text string
		want            EndedJob
	}{
		{"failed, with a name that looks like fields", "2", showFailed, EndedJob{
			ID: "2", Dir: "/home/u/job2/work", State: "FAILED", Reason: "NonZeroExitCode", ExitCode: "3:0", ReqMem: "100Mc",
			Start: clock("00:44:48"), End: clock("00:44:48"), TimeLimit: "01:00:00",
		}},
		{"killed by the kernel", "4", showOOM, EndedJob{
			ID: "4", Dir: "/home/u/job4/work", State: "OUT_OF_MEMORY", Reason: "OutOfMemory", ExitCode: "0:125", ReqMem: "100M",
			Start: clock("00:44:50"), End: clock("00:44:51"), TimeLimit: "01:00:00",
		}},
		{"array task by its number", "8", showArray, EndedJob{
			ID: "8", Dir: "/home/u/job6/work", State: "FAILED", Reason: "NonZeroExitCode", ExitCode: "1:0", ReqMem: "100M",
			Start: clock("00:44:53"), End: clock("00:44:53"), TimeLimit: "01:00:00",
		}},
		{"array task by its index", "6_0", showArray, EndedJob{
			ID: "7", Dir: "/home/u/job6/work", State: "COMPLETED", ExitCode: "0:0", ReqMem: "100M",
			Start: clock("00:44:52"), End: clock("00:44:52"), TimeLimit: "01:00:00",
		}},
		{"time limit", "9", showTimeout, EndedJob{
			ID: "9", Dir: "/home/u/job7/work", State: "TIMEOUT", Reason: "TimeLimit", ExitCode: "0:15", ReqMem: "100M",
			Start: clock("00:44:57"), End: clock("00:46:16"), TimeLimit: "00:01:00",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseShowJob([]byte(test.text), test.job, time.UTC)
			must(t, err)
			test.want.Source = "scontrol show job"
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := ParseShowJob([]byte("slurm_load_jobs error: Invalid job id specified\n"), "1", time.UTC); !errors.Is(err, ErrNoJob) {
		t.Errorf("of a job that is not there: %v", err)
	}
}

func TestEnded(t *testing.T) {
	disabled := errors.New("Slurm accounting storage is disabled")
	for _, test := range []struct {
		name, job   string
		sacct, show string // empty for an error
		source      string
	}{
		{"sacct knows", "5", sacctOOM, "", "sacct"},
		{"no accounting", "4", "", showOOM, "scontrol show job"},
		{"not in the accounting", "4", sacctCompleted, showOOM, "scontrol show job"},
		{"by its SLUID", "s46HM84SHMGW00", sacctOOM, "", "sacct"},
		{"by its SLUID, no accounting", "s46HM84SHMGW00", "", showOOM, "scontrol show job"},
		{"unknown", "4", "", "", ""},
		{"an option", "--all", sacctOOM, showOOM, ""},
		{"a list", "4,5", sacctOOM, showOOM, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			j, err := Ended(t.Context(), func(_ context.Context, name string, _ ...string) ([]byte, error) {
				out := map[string]string{"sacct": test.sacct, "scontrol": test.show}[name]
				if out == "" {
					return nil, disabled
				}
				return []byte(out), nil
			}, test.job)
			if j.Source != test.source || (err == nil) != (test.source != "") {
				t.Errorf("%+v, %v", j, err)
			}
		})
	}
}

func FuzzParseEnded(f *testing.F) {
	for _, text := range []string{sacctSteps, sacctArray, sacctTimeout, sacctStepKilled, showFailed, showArray, "1|1||||||||||||a|b", "JobId=1 JobName= UserId= JobState=X"} {
		f.Add([]byte(text), "6")
	}
	f.Fuzz(func(t *testing.T, b []byte, job string) {
		for _, parse := range []func([]byte, string, *time.Location) (EndedJob, error){ParseSacct, ParseShowJob} {
			j, err := parse(b, job, time.UTC)
			if err == nil && (j.ID == "" || j.State == "" || strings.ContainsAny(j.State, " \n")) {
				t.Errorf("%q: no job in %+v", b, j)
			}
			if err != nil && !cmp.Equal(j, EndedJob{}) {
				t.Errorf("%q: %+v beside %v", b, j, err)
			}
		}
	})
}

// What sacct and scontrol of Slurm 22.05.8 printed of real jobs: names of nodes
// and folders were changed, and of scontrol's lines the middle was left out.
const (
	sacctCompleted = `1|1|COMPLETED|None|0:0|0:0|102400K||2026-11-22T00:51:32|2026-11-22T00:51:34|01:00:00|n1|/home/u/work|train.sh
1.batch|1.batch|COMPLETED||0:0|||220K|2026-11-22T00:51:32|2026-11-22T00:51:34||n1||batch
`
	sacctNeverRan = `3|3|CANCELLED by 65534|None|0:0|0:0|102400K||2026-11-22T00:51:32|2026-11-22T00:51:32|Partition_Limit|None assigned|/home/u/work|train.sh
`
	sacctTimeout = `4|4|TIMEOUT|None|0:0|0:0|102400K||2026-11-22T00:51:33|2026-11-22T00:52:59|00:01:00|n1|/home/u/work|train.sh
4.batch|4.batch|CANCELLED||0:15|||220K|2026-11-22T00:51:33|2026-11-22T00:53:00||n1||batch
`
	sacctOOM = `5|5|OUT_OF_MEMORY|None|0:125|0:0|102400K||2026-11-22T00:51:35|2026-11-22T00:51:35|01:00:00|n1|/home/u/work|train.sh
5.batch|5.batch|OUT_OF_MEMORY||0:125|||0|2026-11-22T00:51:35|2026-11-22T00:51:35||n1||batch
`
	sacctSteps = `6|6|FAILED|None|0:11|0:125|102400K||2026-11-22T00:51:36|2026-11-22T00:51:39|01:00:00|n1|/home/u/work|train.sh
6.batch|6.batch|CANCELLED||0:11|||3660K|2026-11-22T00:51:36|2026-11-22T00:51:39||n1||batch
6.0|6.0|COMPLETED||0:0|||23276K|2026-11-22T00:51:36|2026-11-22T00:51:39||n1||0
6.1|6.1|FAILED||4:0|||0|2026-11-22T00:51:39|2026-11-22T00:51:39||n1||1
6.2|6.2|OUT_OF_MEMORY||0:125|||0|2026-11-22T00:51:39|2026-11-22T00:51:39||n1||2
`
	sacctArray = `9|7_0|COMPLETED|None|0:0|0:0|102400K||2026-11-22T00:51:40|2026-11-22T00:51:40|01:00:00|n1|/home/u/work|train.sh
9.batch|7_0.batch|COMPLETED||0:0|||0|2026-11-22T00:51:40|2026-11-22T00:51:40||n1||batch
7|7_1|FAILED|None|1:0|0:0|102400K||2026-11-22T00:51:41|2026-11-22T00:51:41|01:00:00|n1|/home/u/work|train.sh
7.batch|7_1.batch|FAILED||1:0|||0|2026-11-22T00:51:41|2026-11-22T00:51:41||n1||batch
7|7_1|FAILED|None|1:0|0:0|102400K||2026-11-22T00:51:41|2026-11-22T00:51:41|01:00:00|n1|/home/u/work|train.sh
7.batch|7_1.batch|FAILED||1:0|||0|2026-11-22T00:51:41|2026-11-22T00:51:41||n1||batch
`
	sacctOverMemory = `10|10|FAILED|None|0:9|0:0|102400K||2026-11-22T00:55:39|2026-11-22T00:55:41|01:00:00|n1|/home/u/work|train.sh
10.batch|10.batch|CANCELLED by 0||0:9|||931340K|2026-11-22T00:55:39|2026-11-22T00:55:41||n1||batch
`
	sacctCancelled = `11|11|CANCELLED by 65534|None|0:0|0:0|102400K||2026-11-22T00:55:39|2026-11-22T00:55:41|01:00:00|n1|/home/u/work|train.sh
11.batch|11.batch|CANCELLED||0:15|||3276K|2026-11-22T00:55:39|2026-11-22T00:55:42||n1||batch
`
	sacctStepKilled = `12|12|FAILED|None|9:0|0:9|102400K||2026-11-22T00:55:43|2026-11-22T00:55:47|01:00:00|n1|/home/u/work|train.sh
12.batch|12.batch|FAILED||9:0|||10764K|2026-11-22T00:55:43|2026-11-22T00:55:47||n1||batch
12.0|12.0|CANCELLED by 0||0:9|||212936K|2026-11-22T00:55:43|2026-11-22T00:55:44||n1||0
12.1|12.1|CANCELLED by 65534||0:9|||2864K|2026-11-22T00:55:44|2026-11-22T00:55:47||n1||1
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
