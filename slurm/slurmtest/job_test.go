package slurmtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFields(t *testing.T) {
	line := "JobId=7 JobName=two words UserId=nobody(65534) JobState=COMPLETED Reason=None ExitCode=0:9 TRES=cpu=1,mem=300M Command=/x/script a=1 Power= "
	want := map[string]string{
		"JobId": "7", "JobName": "two words", "UserId": "nobody(65534)", "JobState": "COMPLETED", "Reason": "None",
		"ExitCode": "0:9", "TRES": "cpu=1,mem=300M", "Command": "/x/script", "a": "1", "Power": "",
	}
	if diff := cmp.Diff(want, parseFields(line)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseFields(f *testing.F) {
	f.Add("JobId=7 JobName=two words = x=y=z")
	f.Fuzz(func(t *testing.T, line string) {
		for name := range parseFields(line) {
			if name == "" {
				t.Errorf("a field without a name in %q", line)
			}
		}
	})
}

func TestExitPair(t *testing.T) {
	for s, want := range map[string][2]int{"0:0": {0, 0}, "3:0": {3, 0}, "0:9": {0, 9}, "": {0, 0}, "x:y": {0, 0}} {
		if code, signal := exitPair(s); code != want[0] || signal != want[1] {
			t.Errorf("%q: %d and %d", s, code, signal)
		}
	}
}
