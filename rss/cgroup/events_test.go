package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestParseEvents(t *testing.T) {
	got, err := parseEvents([]byte("low 0\nhigh 7\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n"))
	if err != nil || got != (Events{OOMKill: 3, Hit: 12, High: 7}) {
		t.Errorf("v2: %+v, %v", got, err)
	}
	got, err = parseEvents([]byte("oom_kill_disable 0\nunder_oom 1\noom_kill 2\n"))
	if err != nil || got != (Events{OOMKill: 2}) {
		t.Errorf("v1: %+v, %v", got, err)
	}
	for _, in := range []string{"", "oom_kill", "oom_kill x", "a 1 2"} {
		if _, err := parseEvents([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestParseProcs(t *testing.T) {
	got, err := parseProcs([]byte("12\n0\n7\n\n"))
	if err != nil || !cmp.Equal(got, []int{12, 7}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseProcs([]byte("12\n-7\n")); err == nil {
		t.Error("no error")
	}
}

func FuzzParseEvents(f *testing.F) {
	f.Add([]byte("oom_kill 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := parseEvents(b); err == nil && e.OOMKill > 0 && !strings.Contains(string(b), "oom_kill") {
			t.Errorf("%+v from %q", e, b)
		}
	})
}

func FuzzParseProcs(f *testing.F) {
	f.Add([]byte("1\n2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pids, _ := parseProcs(b)
		for _, pid := range pids {
			if pid <= 0 {
				t.Errorf("%d from %q", pid, b)
			}
		}
	})
}

// v1 counts an OOM kill where the victim was, v2 up to the root since Linux 5.2.
func TestEvents(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	dir := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	fs.Replace(dir+"step_batch/task_0/memory.oom_control", "oom_kill 0", "oom_kill 2")
	fs.Write(dir+"memory.failcnt", "759\n")
	e, err := open(t, fs, rsstest.Trainer).Levels[2].Events()
	if err != nil || e != (Events{OOMKill: 2, Hit: 759}) {
		t.Errorf("v1: %+v, %v", e, err)
	}
	fs = rsstest.Unpack(t, "torch", "slurm-v2")
	dir = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7/"
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 1\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (Events{OOMKill: 1, Hit: 6, High: 5}) {
		t.Errorf("v2: %+v, %v", e, err)
	}
	// Before Linux 5.2 it counted where the victim was, and had no memory.events.local.
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	fs.Write(dir+"step_batch/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 3\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (Events{OOMKill: 3, Hit: 6, High: 5}) {
		t.Errorf("v2 before Linux 5.2: %+v, %v", e, err)
	}
	fs.Write(dir+"memory.events.local", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e.OOMKill != 0 {
		t.Errorf("v2 since Linux 5.2: %+v, %v", e, err)
	}
}
