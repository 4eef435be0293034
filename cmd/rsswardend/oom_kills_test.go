package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestOOM: a step that the OOM killer hits and that is gone at once is reported, with a
// record when its job has ended.
func TestOOM(t *testing.T) {
	tree := rsstest.NewSlurmTree(t)
	task := tree.Job(99, 30*rss.MiB)
	records := t.TempDir()
	// No look of the interval comes in between: what is seen was looked for at once.
	d := start(t, "--records", records, "--interval", "1h")
	eater := rsstest.StartEater(t)
	task.Join(eater.PID)
	if eater.Anon(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	until(t, "a line about the kill", func() bool { return strings.Contains(d.said(), "the OOM killer ended processes of a job") })
	_, page := d.get("/metrics")
	if n := values(t, page, tree.Node)["rsswarden_oom_kills_total 99"]; n != 1 {
		t.Errorf("%v kills, want 1", n)
	}
	tree.Remove(99)
	d.end()
	e, b := lastRecord(t, records, tree.Node)
	if e.JobID != "99" || e.OOMKills != 1 || e.Steps["batch"] != 1 || e.LimitBytes == nil || *e.LimitBytes != 30*rss.MiB || e.KnownBy != nodejobs.ByCounter || e.UID == nil || *e.UID != 1000 || e.FirstKill.IsZero() {
		t.Errorf("%s", b)
	}
	if info, err := os.Stat(filepath.Join(records, "oom.jsonl")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestOOMOfAJobThatIsGone: a job that the OOM killer hits and that is gone at once is on
// record with what is known of it, and what no look saw is null.
func TestOOMOfAJobThatIsGone(t *testing.T) {
	tree := rsstest.NewSlurmTree(t)
	records := t.TempDir()
	d := start(t, "--records", records)
	task := tree.Job(100, 30*rss.MiB)
	eater := rsstest.StartEater(t)
	task.Join(eater.PID)
	until(t, "the kernel was asked to tell of it", func() bool {
		_, page := d.get("/metrics")
		return strings.Contains(page, `jobid="100",node="`+tree.Node) && strings.Contains(page, "\nrsswarden_oom_unheard_steps 0\n")
	})
	if eater.Anon(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	job := filepath.Dir(filepath.Dir(task.Dir))
	for dir := task.Dir; dir != filepath.Dir(job); dir = filepath.Dir(dir) {
		for os.Remove(dir) != nil { // as soon as the process is out of it
		}
	}
	until(t, "a line about the job", func() bool {
		return strings.Contains(d.said(), `msg="a job that the OOM killer hit has ended" jobid=100 `)
	})
	e, b := lastRecord(t, records, tree.Node)
	if e.JobID != "100" || e.Node != tree.Node || !e.Ended || e.OOMKills != 1 || e.KnownBy == nodejobs.ByEnd || e.Steps["batch"] != 1 || *e.UID != 1000 || (e.PeakBytes == nil) != (e.AtLimit == nil) {
		t.Errorf("%s", b)
	}
}

// lastRecord is the newest line about a node in oom.jsonl: of a job there is one of its first
// kill and one of its end.
func lastRecord(t *testing.T, dir, node string) (e entry, text []byte) {
	t.Helper()
	text = wardentest.ReadFile(t, filepath.Join(dir, "oom.jsonl"))
	for line := range bytes.Lines(text) {
		var one entry
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if one.Node == node {
			e = one
		}
	}
	return e, text
}

// The record is bounded: one older file is kept.
func TestRecordIsBounded(t *testing.T) {
	r := &recordFile{dir: t.TempDir()}
	for i := range 3 * recordsMost / 250 {
		must(t, r.append(entry{JobID: fmt.Sprint(i)}))
	}
	r.close()
	files, _ := filepath.Glob(filepath.Join(r.dir, "*"))
	if len(files) != 2 {
		t.Errorf("%q", files)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > recordsMost {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	// Nothing of another's is written to, followed or waited for.
	path := filepath.Join(t.TempDir(), "oom.jsonl")
	refused := func(what string) {
		t.Helper()
		if err := (&recordFile{dir: filepath.Dir(path)}).append(entry{}); err == nil {
			t.Errorf("%s was written to", what)
		}
	}
	must(t, os.Symlink("/dev/null", path))
	refused("a symbolic link")
	must(t, os.Remove(path))
	must(t, unix.Mkfifo(path, 0o600))
	refused("a pipe")
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	defer reader.Close()
	refused("a pipe with a reader")
}

// TestKillsAgainAndAgain: one job cannot fill the log, and all its kills are counted.
func TestKillsAgainAndAgain(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	d := newDaemon(settings{node: "n1", records: dir, interval: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
	begin := time.Now()
	job := nodejobs.Job{ID: "7", Node: "n1"}
	at := func(s int) *nodejobs.Snapshot {
		return &nodejobs.Snapshot{At: begin.Add(time.Duration(s) * time.Second), Jobs: []nodejobs.Job{job}}
	}
	for s := range 90 {
		job.OOMKills++
		d.watchOOM(at(s))
	}
	end := at(90)
	end.Jobs, end.Ended = nil, []nodejobs.Ended{{Job: job, Last: end.At}}
	d.watchOOM(end)
	d.close()
	if n := strings.Count(log.String(), "the OOM killer ended processes of a job"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "has ended\" jobid=7 node=n1 uid=0 kills=90") {
		t.Errorf("%s", log.String())
	}
	b, err := os.ReadFile(filepath.Join(dir, "oom.jsonl"))
	var first, last entry
	lines := bytes.SplitN(b, []byte("\n"), 2)
	if err != nil || len(lines) != 2 || json.Unmarshal(lines[0], &first) != nil || json.Unmarshal(lines[1], &last) != nil ||
		first.Ended || first.OOMKills != 1 || !last.Ended || last.OOMKills != 90 {
		t.Errorf("%v: %s", err, b)
	}
}
