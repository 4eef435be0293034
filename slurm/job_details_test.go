package slurm

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

// Two tasks of an array, as Slurm 22.05 shows them; the job's name looks like what comes later.
func TestParseJobDetails(t *testing.T) {
	const shown = "JobId=12 ArrayJobId=12 ArrayTaskId=3 JobName=a TRES= Nodes=x CPU_IDs=0 Mem=9 UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A " +
		"JobState=RUNNING Reason=None RunTime=1-00:00:04 StartTime=2026-11-26T21:07:21 NodeList=n[1-3] NumNodes=3 NumCPUs=7 TRES=cpu=7,mem=600M,node=3,billing=7,gres/gpu=2 " +
		"Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* JOB_GRES=(null) Nodes=n[1-2] CPU_IDs=0-1 Mem=200 GRES= Nodes=n3 CPU_IDs=0,2-3 Mem=0 GRES= " +
		"MinCPUsNode=1 Features=(null) Comment=Nodes=y CPU_IDs=0 Mem=7 AdminComment=JS1:H4sI WorkDir=/x\n" +
		"JobId=13 ArrayJobId=12 ArrayTaskId=2 JobName=a UserId=nobody(65534) JobState=RUNNING RunTime=00:00:04 StartTime=2026-11-26T21:07:21 " +
		"TRES=cpu=1 Nodes=n4 CPU_IDs=0 Mem=100 GRES= MinCPUsNode=1\n"
	start, err := time.ParseInLocation("2006-01-02T15:04:05", "2026-11-26T21:07:21", time.Local)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseJobDetails([]byte(shown), "12")
	want := JobDetails{
		Name: "12_3", State: "RUNNING", Start: start, RunTime: 24*time.Hour + 4*time.Second, GPUs: 2, AdminComment: "JS1:H4sI",
		Nodes: map[string]NodeShare{"n1": {2, 200}, "n2": {2, 200}, "n3": {3, 0}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	if got, err = ParseJobDetails([]byte(shown), "13"); err != nil || got.Name != "12_2" || got.AdminComment != "" || !reflect.DeepEqual(got.Nodes, map[string]NodeShare{"n4": {1, 100}}) {
		t.Errorf("%v: %+v", err, got)
	}
	het := "JobId=21 HetJobId=20 HetJobOffset=1 JobName=x UserId=u(1) JobState=RUNNING RunTime=x\n"
	if got, err = ParseJobDetails([]byte(het), "21"); err != nil || got.Name != "20+1" || got.RunTime != 0 {
		t.Errorf("%v: %+v", err, got)
	}
	// What a user writes names no other job, and hides no comment of another program's.
	const rest = " UserId=u(1) MCS_label=N/A JobState=RUNNING Command=/s"
	for _, forged := range []string{
		"JobId=7 JobName=x ArrayJobId=1 ArrayTaskId=0 MCS_label=" + rest,
		"JobId=7 JobName=x" + rest + " AdminComment=(null) AdminComment=theirs",
		"JobId=8 JobName=x\nJobId=7 ArrayJobId=1 ArrayTaskId=0 JobName=y" + rest + "\nJobId=7 JobName=x" + rest,
	} {
		if got, err = ParseJobDetails([]byte(forged), "7"); !errors.Is(err, ErrUnclear) {
			t.Errorf("%s: %+v, %v", forged, got, err)
		}
	}
	if got, err = ParseJobDetails([]byte("JobId=7 JobName=x ArrayJobId=1 ArrayTaskId=0"+rest), "7"); err != nil || got.Name != "7" {
		t.Errorf("%v: %+v", err, got)
	}
	if _, err = ParseJobDetails([]byte(shown), "14"); err == nil {
		t.Error("a job that is not there was found")
	}
}
