package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAccounted: each job that ran, since a time; names with a bar, and what is no job, harm nothing.
func TestAccounted(t *testing.T) {
	since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local)
	var asked []string
	said := []string{
		"7|ann|COMPLETED|None|0:0|2026-11-22T00:51:32|3600|JS1:x|fit|a|b",
		"8|ann|CANCELLED by 1000|None|0:15|2026-11-22T00:51:32|0||",
		"9|ann|PENDING|None|0:0|Unknown|0||fit",
		"10|ann|RUNNING|None|0:0|2026-10-01T00:00:00|3600||began before",
		"11.batch||COMPLETED||0:0|2026-11-22T00:51:32|3600||batch",
		"a name of two", "lines", "", "12|ann|X", "99999999999|ann|COMPLETED|None|0:0|2026-11-22T00:51:32|1||x",
	}
	ask := func(_ context.Context, each func(string), name string, args ...string) error {
		asked = append([]string{name}, args...)
		for _, l := range said {
			each(l)
		}
		return nil
	}
	var got []string
	must(t, Accounted(t.Context(), ask, since, true, func(j *AccountedJob) {
		got = append(got, fmt.Sprint(j.ID, j.User, j.State, j.ExitCode, j.Ran, j.Comment, j.Name))
	}))
	want := []string{"7annCOMPLETED0:01h0m0sJS1:xfit|a|b", "8annCANCELLED0:150s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Contains(asked, "--starttime=2026-11-01T00:00:00") || !slices.Contains(asked, "--allusers") {
		t.Errorf("%q", asked)
	}
	down := errors.New("Connection refused")
	err := Accounted(t.Context(), func(context.Context, func(string), string, ...string) error { return down }, since, false, nil)
	if !errors.Is(err, down) || !strings.HasPrefix(err.Error(), "cannot ask sacct ") {
		t.Error(err)
	}
}

func FuzzAccounted(f *testing.F) {
	f.Add("7|ann|COMPLETED|None|0:0|2026-11-22T00:51:32|3600|JS1:x|fit")
	f.Fuzz(func(t *testing.T, line string) {
		if j, ok := parseAccounted(line, time.UTC); ok && (!isDigits(j.ID) || j.State == "" || j.Start.IsZero() || j.Ran < 0) {
			t.Errorf("%+v", j)
		}
	})
}
