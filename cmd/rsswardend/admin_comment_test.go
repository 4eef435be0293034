package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/adminline"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// fakeSlurm keeps the AdminComment of jobs 1 to 9, which run on n1 and n2.
type fakeSlurm struct {
	comment map[string]string
	down    error
	ended   bool
	version string
	asked   int
	sacct   map[string]string
}

func (f *fakeSlurm) run(_ context.Context, name string, args ...string) ([]byte, error) {
	f.asked++
	switch {
	case f.down != nil:
		return nil, f.down
	case name == "sacctmgr":
		job, _ := strings.CutPrefix(args[5], "jobid=")
		f.sacct[job], _ = strings.CutPrefix(args[7], "AdminComment=")
		return nil, nil
	case args[0] == "--version":
		return []byte("slurm " + f.version + "\n"), nil
	case args[0] == "update" && f.ended:
		return nil, errors.New("Job has already finished")
	case args[0] == "update":
		job, _ := strings.CutPrefix(args[1], "JobId=")
		f.comment[job], _ = strings.CutPrefix(args[2], "AdminComment=")
		return nil, nil
	}
	job := args[len(args)-1]
	comment := f.comment[job]
	if comment != "" {
		comment = " AdminComment=" + comment
	}
	return fmt.Appendf(nil, "JobId=%s JobName=x UserId=u(1) JobState=RUNNING RunTime=00:10:00 StartTime=2026-11-26T10:00:00 TRES=cpu=4,mem=2G "+
		"Nodes=n[1-2] CPU_IDs=0-1 Mem=1024 GRES= MinCPUsNode=1%s WorkDir=/\n", job, comment), nil
}

func fake() *fakeSlurm {
	return &fakeSlurm{comment: map[string]string{}, sacct: map[string]string{}, version: "22.05.8"}
}

// write has what is due written, as the daemon's loop does.
func write(t *testing.T, w *lineWriter, s *nodejobs.Snapshot) (lines int, err error) {
	t.Helper()
	w.look(s, func(*nodejobs.Job) (time.Duration, bool) { return 90 * time.Second, true })
	for w.busy {
		lines++
		if e := w.heard(<-w.done, s.At); e != nil {
			err = e
		}
	}
	return lines, err
}

func jobOn(node string, id string, began time.Time, peak rss.Bytes) nodejobs.Job {
	return nodejobs.Job{ID: id, Node: node, Use: nodejobs.Use{Measured: true, Since: began, Peak: peak, Unreclaimable: peak, Charged: peak + rss.MiB, Limit: rss.GiB}}
}

func TestAdminComment(t *testing.T) {
	f, w := fake(), newLineWriter()
	w.run = f.run
	start := time.Date(2026, 11, 26, 10, 0, 0, 0, time.Local)
	at := func(d time.Duration, job nodejobs.Job) *nodejobs.Snapshot {
		return &nodejobs.Snapshot{At: start.Add(d), Jobs: []nodejobs.Job{job}}
	}
	for _, step := range []struct {
		at    time.Duration
		peak  rss.Bytes
		kills uint64
		lines int
		why   string
	}{
		{50 * time.Second, 100 * rss.MiB, 0, 0, "it is too young"},
		{3 * time.Minute, 100 * rss.MiB, 0, 1, "the first"},
		{3*time.Minute + 30*time.Second, 200 * rss.MiB, 0, 0, "it has grown, too soon"},
		{5 * time.Minute, 200 * rss.MiB, 0, 1, "it has grown"},
		{7 * time.Minute, 201 * rss.MiB, 0, 0, "hardly"},
		{7*time.Minute + 10*time.Second, 201 * rss.MiB, 2, 1, "an OOM kill"},
		{18 * time.Minute, 201 * rss.MiB, 2, 1, "ten minutes later"},
	} {
		j := jobOn("n1", "7", start, step.peak)
		j.OOMKills = step.kills
		if n, err := write(t, w, at(step.at, j)); n != step.lines || err != nil {
			t.Errorf("%v (%s): %d lines, want %d: %v", step.at, step.why, n, step.lines, err)
		}
	}
	line, err := adminline.Decode(f.comment["7"])
	n := line.Nodes["n1"]
	if err != nil || n.Limit != 1<<30 || n.Peak != 201<<20 || n.CPUs != 2 || n.CPUSeconds == nil || *n.CPUSeconds != 90 || line.Seconds != 600 || line.Own.Nodes["n1"].OOMKills != 2 {
		t.Errorf("%+v %+v %v", line, line.Own, err)
	}

	// The daemon of another node adds its own, and leaves what is there.
	other := newLineWriter()
	other.run, other.self = f.run, "1.2"
	if n, err := write(t, other, at(18*time.Minute, jobOn("n2", "7", start, 300*rss.MiB))); n != 1 || err != nil {
		t.Errorf("%d lines: %v", n, err)
	}
	if line, err = adminline.Decode(f.comment["7"]); err != nil || line.Nodes["n1"].Peak != 201<<20 || line.Nodes["n2"].Peak != 300<<20 {
		t.Errorf("%+v %v", line, err)
	}
	// A second daemon of a node leaves it to the first as long as that lives: here this process.
	before := f.comment["7"]
	if write(t, other, at(18*time.Minute, jobOn("n1", "7", start, 900*rss.MiB))); f.comment["7"] != before {
		t.Error("two daemons of a node write")
	}
}

func TestAdminCommentLeftAlone(t *testing.T) {
	for _, theirs := range []string{"JS1:Short", "a note of the operator's", "JS1:H4sIAAAAAAAA"} {
		f, w := fake(), newLineWriter()
		w.run, f.comment["3"] = f.run, theirs
		start := time.Now().Add(-time.Hour)
		s := &nodejobs.Snapshot{At: time.Now(), Jobs: []nodejobs.Job{jobOn("n1", "3", start, rss.MiB)}}
		write(t, w, s)
		asked := f.asked
		s.At = s.At.Add(time.Hour)
		if write(t, w, s); f.comment["3"] != theirs || f.asked != asked {
			t.Errorf("%q became %q, and was asked for %d times more", theirs, f.comment["3"], f.asked-asked)
		}
	}
}

// A job that cannot be written for a reason of its own holds up no other.
func TestAdminCommentOfOthers(t *testing.T) {
	for why, of7 := range map[string]func(args []string) ([]byte, error){
		"a name like Slurm's fields": func([]string) ([]byte, error) {
			return []byte("JobId=7 JobName=x MCS_label= UserId=u(1) MCS_label=N/A JobState=RUNNING\n"), nil
		},
		"too long": func([]string) ([]byte, error) { return make([]byte, 8<<20), nil },
		"forgotten meanwhile": func(args []string) ([]byte, error) {
			if args[0] == "update" {
				return nil, errors.New("7: Invalid job id specified")
			}
			return fake().run(t.Context(), "scontrol", args...)
		},
	} {
		f, w := fake(), newLineWriter()
		w.run = func(ctx context.Context, name string, args ...string) ([]byte, error) {
			if args[len(args)-1] == "7" || args[1] == "JobId=7" {
				return of7(args)
			}
			return f.run(ctx, name, args...)
		}
		old := time.Now().Add(-time.Hour)
		s := &nodejobs.Snapshot{At: time.Now(), Jobs: []nodejobs.Job{jobOn("n1", "7", old, rss.MiB), jobOn("n1", "8", old, rss.MiB)}}
		if n, err := write(t, w, s); n != 2 || err != nil || f.comment["8"] == "" || f.comment["7"] != "" {
			t.Errorf("%s: %d lines, %v, %q", why, n, err, f.comment)
		}
	}
}

// Where Slurm does not answer the line is kept, also after the job's end, and written later: into
// the accounting, unless this Slurm would make it lower-case there.
func TestAdminCommentLater(t *testing.T) {
	for version, kept := range map[string]bool{"22.05.8": false, "23.02.1": true} {
		f, w := fake(), newLineWriter()
		w.run, f.version, f.down = f.run, version, errors.New("connection refused")
		start := time.Now().Add(-time.Hour)
		s := &nodejobs.Snapshot{At: time.Now(), Jobs: []nodejobs.Job{jobOn("n1", "4", start, rss.MiB)}}
		if n, err := write(t, w, s); n != 1 || err == nil {
			t.Errorf("%d lines: %v", n, err)
		}
		asked := f.asked
		s.At = s.At.Add(10 * time.Second)
		if write(t, w, s); f.asked != asked {
			t.Error("it asks on while Slurm does not answer")
		}
		s = &nodejobs.Snapshot{At: s.At.Add(time.Minute), Ended: []nodejobs.Ended{{Job: s.Jobs[0]}}}
		f.down, f.ended = nil, true
		if n, err := write(t, w, s); n != 1 || err != nil || (f.sacct["4"] != "") != kept || len(w.jobs) != 0 {
			t.Errorf("%s: %d lines, %v, %q, %d jobs kept", version, n, err, f.sacct["4"], len(w.jobs))
		}
	}
	w := newLineWriter()
	for i := range 2 * maxKept {
		w.jobs[fmt.Sprint(i)] = &jobLine{id: fmt.Sprint(i), ended: time.Unix(int64(i), 0)}
	}
	if w.drop(); len(w.jobs) != maxKept || w.jobs["0"] != nil {
		t.Errorf("%d jobs are kept", len(w.jobs))
	}
}

// TestJobsOfADay: ten thousand jobs of a day are some writes a second for slurmctld, not hundreds.
func TestJobsOfADay(t *testing.T) {
	start, lines := time.Unix(0, 0), 0
	l := &jobLine{id: "1", seen: start, shares: map[string]share{"n": {peak: rss.GiB}}}
	for at := start; at.Before(start.Add(24 * time.Hour)); at = at.Add(10 * time.Second) {
		if l.notable(); l.due(at) {
			lines++
			l.wrote = at
			l.peak, l.kills = l.sums()
		}
	}
	if lines < 10 || lines > 50 {
		t.Errorf("a job of a day has %d lines", lines)
	}
}

// reader is how jobstats reads a line.
const reader = `import base64, gzip, json, sys
t = json.loads(gzip.decompress(base64.b64decode(sys.argv[1][4:])))
for node, d in t["nodes"].items():
    print(sys.argv[1][:4], node, d["total_memory"] >> 20, d["used_memory"] >> 20, d["cpus"], type(d["total_time"]).__name__, t["gpus"])`

// TestAdminCommentOfSlurm: a job that the OOM killer hits has its line while it still runs.
func TestAdminCommentOfSlurm(t *testing.T) {
	wardentest.NeedPython(t)
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{})
	startCommand(t, "env", "SLURM_CONF="+c.Conf(), binary, "--interval", "1s", "--admin-comment")
	run := c.Submit(t, "(echo 1000 >/proc/self/oom_score_adj; head -c 900000000 /dev/zero | tail)\nwhile [ ! -e stop ]; do sleep 0.1; done", "--mem=60", "--no-requeue", "--array=3")
	got := run.Until(t, 2*time.Minute, func(r slurmtest.Result) bool { return r.Fields["AdminComment"] != "" || r.Over() })
	must(t, os.WriteFile(filepath.Join(run.Dir, "stop"), nil, 0o644))
	line, err := adminline.Decode(got.Fields["AdminComment"])
	if err != nil || line.Own == nil || line.Own.Nodes[c.Node()].OOMKills == 0 {
		t.Errorf("%+v: %v\n%s", line, err, got.Fields["AdminComment"])
	}
	out, errs, err := wardentest.Output(wardentest.Python, "-c", reader, got.Fields["AdminComment"])
	if want := "JS1: " + c.Node() + " 60 "; err != nil || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, " float 0\n") {
		t.Errorf("%q, want %q: %v\n%s", out, want, err, errs)
	}
	run.Wait(t)
}

// TestAdminCommentAfterwards: what was not written while a job ran goes into slurmdbd by sacctmgr,
// as it is.
func TestAdminCommentAfterwards(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{Accounting: true, Suite: debian.Sid})
	run := c.Submit(t, "true", "--mem=60", "--array=3")
	run.Wait(t)
	comment := func(state string) string {
		out := c.Admin(t, "sacct", "-nXP", "-j", run.ID+"_3", "-o", "State,AdminComment").Stdout
		text, _ := strings.CutPrefix(strings.TrimSpace(out), state+"|")
		return text
	}
	wardentest.Until(t, "slurmdbd knows that the job has ended", func() bool { return comment("COMPLETED") == "" })
	w := newLineWriter()
	w.run = func(ctx context.Context, name string, args ...string) ([]byte, error) {
		argv := debian.Need(t, debian.Sid).Argv(name, args...)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = c.Env()
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%q: %w: %s", args, err, out)
		}
		return out, err
	}
	got, err := run.Now(t.Context())
	must(t, err)
	ended := jobOn(c.Node(), got.Fields["JobId"], time.Now().Add(-time.Minute), 50*rss.MiB)
	ended.OOMKills = 1
	if n, err := write(t, w, &nodejobs.Snapshot{At: time.Now(), Ended: []nodejobs.Ended{{Job: ended}}}); n != 1 || err != nil || len(w.jobs) != 0 {
		t.Errorf("%d lines: %v", n, err)
	}
	line, err := adminline.Decode(comment("COMPLETED"))
	if n := line.Nodes[c.Node()]; err != nil || line.Own == nil || n.Peak != 50<<20 || line.Own.Nodes[c.Node()].OOMKills != 1 {
		t.Errorf("%+v: %v\n%s", line, err, comment("COMPLETED"))
	}
}
