package record

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeLives(t *testing.T, p Places, lines ...Life) {
	t.Helper()
	f, err := OpenLives(p, lines[0].Job)
	must(t, err)
	defer f.Close()
	for _, l := range lines {
		must(t, l.Write(f))
	}
}

// ended are the lines of a life that was requeued, up to a step.
func ended(restart int, run string, last string) []Life {
	var lines []Life
	for _, step := range []string{LifeBegun, stepHold, stepUpdate, stepRelease} {
		lines = append(lines, Life{
			Time: time.Now(), Job: "46", Cluster: "lab", Run: run, Restart: restart, Rule: "97%:requeue",
			FromMiB: 300, ToMiB: 375, Step: step, OK: true,
		})
		if step == last {
			break
		}
	}
	return lines
}

func TestLives(t *testing.T) {
	fails := func(lines []Life, step, why string) []Life {
		i := slices.IndexFunc(lines, func(l Life) bool { return l.Step == step })
		lines[i].OK, lines[i].Error = false, why
		return lines
	}
	for _, c := range []struct {
		name    string
		lines   []Life
		restart int
		ok      bool
		want    Requeued // without Life
		run     string
	}{
		{"requeued", ended(0, "a", stepRelease), 1, true, Requeued{Held: true, Raised: true, Released: true}, "a"},
		{"killed before the release", ended(0, "a", stepUpdate), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"the size was refused", fails(ended(0, "a", stepRelease), stepUpdate, "no\nmore"), 1, true,
			Requeued{Held: true, Released: true, Errors: []string{"update: no more"}}, "a"},
		{"not requeued", fails(ended(0, "a", stepHold), stepHold, "disabled"), 1, false, Requeued{}, ""},
		{"begun alone", ended(0, "a", LifeBegun), 1, false, Requeued{}, ""},
		{"the last of two", slices.Concat(ended(0, "a", stepRelease), ended(1, "b", stepRelease)), 2, true, Requeued{Held: true, Raised: true, Released: true}, "b"},
		{"the same life still", ended(1, "b", stepRelease), 1, false, Requeued{}, ""},
		{"another node was second", slices.Concat(ended(0, "a", stepRelease), ended(0, "b", LifeBegun)), 1, true, Requeued{Held: true, Raised: true, Released: true}, "a"},
		{"another node began first and was too late", slices.Concat(ended(0, "b", LifeBegun), ended(0, "a", stepRelease)), 1, true, Requeued{Held: true, Raised: true, Released: true}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
			writeLives(t, p, c.lines...)
			got, ok := LastLife(ReadLives(p, "46", "lab", time.Now()), c.restart)
			if ok != c.ok {
				t.Fatalf("%v, %+v", ok, got)
			}
			if !ok {
				return
			}
			if got.Held != c.want.Held || got.Raised != c.want.Raised || got.Released != c.want.Released || !slices.Equal(got.Errors, c.want.Errors) || got.Run != c.run || got.FromMiB != 300 {
				t.Errorf("%+v, want %+v of %s", got, c.want, c.run)
			}
		})
	}
}

// TestLivesOfOthers: what is of another job, cluster or time, is no file of ours, or
// is malformed, is left out.
func TestLivesOfOthers(t *testing.T) {
	now := time.Now()
	good := ended(0, "a", LifeBegun)[0]
	change := func(f func(*Life)) Life { l := good; f(&l); return l }
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	writeLives(t, p, good,
		change(func(l *Life) { l.Job = "47" }),
		change(func(l *Life) { l.Cluster = "other" }),
		change(func(l *Life) { l.Time = now.Add(-100 * 24 * time.Hour) }),
		change(func(l *Life) { l.Restart = -1 }),
		change(func(l *Life) { l.Step = "" }),
	)
	path := filepath.Join(p.Journals[0], livesFile("46"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	if _, err := f.WriteString("{\"v\":1,\n\x00\n" + `{"v":2,"job":"46","step":"update"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := ReadLives(p, "46", "lab", now); len(got) != 1 || got[0].Run != "a" {
		t.Errorf("%+v", got)
	}
	if got := Find(p.Journals...); len(got) != 0 {
		t.Errorf("taken for runs: %+v", got)
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/passwd", path))
	if _, err := OpenLives(p, "46"); err == nil {
		t.Error("a link was followed")
	}
	if got := ReadLives(p, "46", "lab", now); got != nil {
		t.Errorf("%+v", got)
	}
	if _, err := OpenLives(Places{}, "46"); err == nil || !strings.Contains(err.Error(), "no place for it is known") {
		t.Error(err)
	}
}

// TestLivesAreBounded: of a file that somebody has let grow the end is read.
func TestLivesAreBounded(t *testing.T) {
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	long := ended(0, "a", LifeBegun)[0]
	long.Because = strings.Repeat("x", 2000)
	for range 50 {
		writeLives(t, p, long)
	}
	writeLives(t, p, ended(1, "b", stepRelease)...)
	all := ReadLives(p, "46", "", time.Now())
	if len(all) > mostLives/2000+4 || len(all) < 5 || all[len(all)-1].Step != stepRelease {
		t.Errorf("%d lines", len(all))
	}
}

func FuzzLives(f *testing.F) {
	f.Add([]byte(`{"v":1,"job":"46","step":"requeuehold","ok":true,"restart":0}` + "\n" + `{"v":1,"job":"46","step":"update","error":"x"}`))
	f.Add([]byte("\n{}\n[]\nnull"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Places{Journals: []string{t.TempDir()}}
		must(t, os.WriteFile(filepath.Join(p.Journals[0], livesFile("46")), text, 0o600))
		for _, l := range ReadLives(p, "46", "", time.Time{}) {
			if l.Job != "46" || l.Step == "" {
				t.Fatalf("%+v", l)
			}
		}
		LastLife(ReadLives(p, "46", "", time.Time{}), 3)
	})
}
