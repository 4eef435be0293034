package slurm

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"
)

func TestFindEnd(t *testing.T) {
	scontrol := func(_ context.Context, args ...string) ([]byte, error) {
		if args[len(args)-1] != "46" {
			return nil, errors.New("no such job")
		}
		return []byte("JobId=46 JobName=a StartTime=2026-11-20T10:00:00 EndTime=2026-11-20T11:30:00 Deadline=N/A"), nil
	}
	end, err := FindEnd(t.Context(), Job{ID: "46"}, scontrol)
	if want := time.Date(2026, 11, 20, 11, 30, 0, 0, time.Local); err != nil || !end.Equal(want) {
		t.Errorf("end %v, %v, want %v", end, err, want)
	}
	if _, err := FindEnd(t.Context(), Job{ID: "47"}, scontrol); err == nil {
		t.Error("no error although scontrol failed")
	}
}

func FuzzParseEnd(f *testing.F) {
	for _, text := range []string{"", "EndTime=Unknown", "EndTime=", "EndTime=2026-11-20T11:30:00", "x EndTime=NONE y", "EndTime=2026-13-40T99:99:99"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := ParseEnd(b, time.UTC)
		if err == nil && !bytes.Contains(b, []byte(end.Format("EndTime=2006-01-02T15:04:05"))) {
			t.Errorf("%q: read %v, which is not there", b, end)
		}
	})
}
