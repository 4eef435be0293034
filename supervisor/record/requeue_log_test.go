package record

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeLog(t *testing.T, p Places, lines ...RequeueEntry) {
	t.Helper()
	f, err := OpenRequeueLog(p, lines[0].Job)
	must(t, err)
	defer f.Close()
	for _, l := range lines {
		must(t, l.Write(f))
	}
}

// ended are the lines of an attempt that was requeued, up to a step.
func ended(restart int, run string, last string) []RequeueEntry {
	var lines []RequeueEntry
	for _, step := range []string{RequeueBegun, stepHold, stepUpdate, "release"} {
		lines = append(lines, RequeueEntry{
			Time: time.Now(), Job: "46", Cluster: "lab", Run: run, Restart: restart, Rule: "97%:requeue",
			FromMiB: 300, ToMiB: 375, Step: step, OK: true,
		})
		if step == last {
			break
		}
	}
	return lines
}

func TestRequeueLog(t *testing.T) {
	fails := func(lines []RequeueEntry, step, why string) []RequeueEntry {
		i := slices.IndexFunc(lines, func(l RequeueEntry) bool { return l.Step == step })
		lines[i].OK, lines[i].Error = false, why
		return lines
	}
	for _, c := range []struct {
		name    string
		lines   []RequeueEntry
		restart int
		ok      bool
		want    Requeued // without RequeueEntry
		run     string
	}{
		{"requeued", ended(0, "a", "release"), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"killed before the release", ended(0, "a", stepUpdate), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"the size was refused", fails(ended(0, "a", "release"), stepUpdate, "no\nmore"), 1, true,
			Requeued{Held: true, Errors: []string{"update: no more"}}, "a"},
		{"not requeued", fails(ended(0, "a", stepHold), stepHold, "disabled"), 1, false, Requeued{}, ""},
		{"begun alone", ended(0, "a", RequeueBegun), 1, false, Requeued{}, ""},
		{"the last of two", slices.Concat(ended(0, "a", "release"), ended(1, "b", "release")), 2, true, Requeued{Held: true, Raised: true}, "b"},
		{"the same attempt still", ended(1, "b", "release"), 1, false, Requeued{}, ""},
		{"another node was second", slices.Concat(ended(0, "a", "release"), ended(0, "b", RequeueBegun)), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"another node began first and was too late", slices.Concat(ended(0, "b", RequeueBegun), ended(0, "a", "release")), 1, true, Requeued{Held: true, Raised: true}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
			writeLog(t, p, c.lines...)
			got, ok := LastRequeue(ReadRequeueLog(p, "46", "lab", time.Now()), c.restart)
			if ok != c.ok {
				t.Fatalf("%v, %+v", ok, got)
			}
			if !ok {
				return
			}
			if got.Held != c.want.Held || got.Raised != c.want.Raised || !slices.Equal(got.Errors, c.want.Errors) || got.Run != c.run || got.FromMiB != 300 {
				t.Errorf("%+v, want %+v of %s", got, c.want, c.run)
			}
		})
	}
}

// TestRequeueLogOfOthers: what is of another job, cluster or time, is no file of ours, or
// is malformed, is left out.
func TestRequeueLogOfOthers(t *testing.T) {
	now := time.Now()
	good := ended(0, "a", RequeueBegun)[0]
	change := func(f func(*RequeueEntry)) RequeueEntry { l := good; f(&l); return l }
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	writeLog(t, p, good,
		change(func(l *RequeueEntry) { l.Job = "47" }),
		change(func(l *RequeueEntry) { l.Cluster = "other" }),
		change(func(l *RequeueEntry) { l.Time = now.Add(-100 * 24 * time.Hour) }),
		change(func(l *RequeueEntry) { l.Restart = -1 }),
		change(func(l *RequeueEntry) { l.Step = "" }),
	)
	path := filepath.Join(p.Journals[0], requeueLogName("46"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	if _, err := f.WriteString("{\"v\":1,\n\x00\n" + `{"v":2,"job":"46","step":"update"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := ReadRequeueLog(p, "46", "lab", now); len(got) != 1 || got[0].Run != "a" {
		t.Errorf("%+v", got)
	}
	if got := Find(p.Journals...); len(got) != 0 {
		t.Errorf("taken for runs: %+v", got)
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/passwd", path))
	if _, err := OpenRequeueLog(p, "46"); err == nil {
		t.Error("a link was followed")
	}
	if got := ReadRequeueLog(p, "46", "lab", now); got != nil {
		t.Errorf("%+v", got)
	}
	if _, err := OpenRequeueLog(Places{}, "46"); err == nil || !strings.Contains(err.Error(), "no place for it is known") {
		t.Error(err)
	}
}

// TestRequeueLogIsBounded: of a file that has grown too long only the end is read.
func TestRequeueLogIsBounded(t *testing.T) {
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	long := ended(0, "a", RequeueBegun)[0]
	long.Because = strings.Repeat("x", 2000)
	for range 50 {
		writeLog(t, p, long)
	}
	writeLog(t, p, ended(1, "b", "release")...)
	all := ReadRequeueLog(p, "46", "", time.Now())
	if len(all) > mostRequeueLog/2000+4 || len(all) < 5 || all[len(all)-1].Step != "release" {
		t.Errorf("%d lines", len(all))
	}
}

func FuzzRequeueLog(f *testing.F) {
	f.Add([]byte(`{"v":1,"job":"46","step":"requeuehold","ok":true,"restart":0}` + "\n" + `{"v":1,"job":"46","step":"update","error":"x"}`))
	f.Add([]byte("\n{}\n[]\nnull"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Places{Journals: []string{t.TempDir()}}
		must(t, os.WriteFile(filepath.Join(p.Journals[0], requeueLogName("46")), text, 0o600))
		for _, l := range ReadRequeueLog(p, "46", "", time.Time{}) {
			if l.Job != "46" || l.Step == "" {
				t.Fatalf("%+v", l)
			}
		}
		LastRequeue(ReadRequeueLog(p, "46", "", time.Time{}), 3)
	})
}
