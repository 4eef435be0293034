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
			if err != nil {
				t.Fatal(err)
			}
			test.want.Source = "sacct"
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := ParseSacct([]byte(sacctArray), "9999", time.UTC); !errors.Is(err, ErrNoJob) {
		t.Errorf("of a job that is not there: %v", err)
	}
	if _, err := ParseSacct(make([]byte, mostSaid+1), "1", time.UTC); err == nil {
		t.Error("an answer without end was read")
	}
}

func TestParseShowJob(t *testing.T) {
	for _, test := range []struct {
		name, job, text string
		want            EndedJob
	}{
		{"failed, with a name that looks like fields", "2", showFailed, EndedJob{
			ID: "2", State: "FAILED", Reason: "NonZeroExitCode", ExitCode: "3:0", ReqMem: "100Mc",
			Start: clock("00:44:48"), End: clock("00:44:48"), TimeLimit: "01:00:00",
		}},
		{"killed by the kernel", "4", showOOM, EndedJob{
			ID: "4", State: "OUT_OF_MEMORY", Reason: "OutOfMemory", ExitCode: "0:125", ReqMem: "100M",
			Start: clock("00:44:50"), End: clock("00:44:51"), TimeLimit: "01:00:00",
		}},
		{"array task by its number", "8", showArray, EndedJob{
			ID: "8", State: "FAILED", Reason: "NonZeroExitCode", ExitCode: "1:0", ReqMem: "100M",
			Start: clock("00:44:53"), End: clock("00:44:53"), TimeLimit: "01:00:00",
		}},
		{"array task by its index", "6_0", showArray, EndedJob{
			ID: "7", State: "COMPLETED", ExitCode: "0:0", ReqMem: "100M",
			Start: clock("00:44:52"), End: clock("00:44:52"), TimeLimit: "01:00:00",
		}},
		{"time limit", "9", showTimeout, EndedJob{
			ID: "9", State: "TIMEOUT", Reason: "TimeLimit", ExitCode: "0:15", ReqMem: "100M",
			Start: clock("00:44:57"), End: clock("00:46:16"), TimeLimit: "00:01:00",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseShowJob([]byte(test.text), test.job, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
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
		{"nobody knows", "4", "", "", ""},
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
	for _, text := range []string{sacctSteps, sacctArray, sacctTimeout, sacctStepKilled, showFailed, showArray, "1|1|||||||||", "JobId=1 JobName= UserId= JobState=X"} {
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
