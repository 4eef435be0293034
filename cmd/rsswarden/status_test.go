package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestStatusText: what people read, at a terminal's width, with names in it that
// would steer one.
func TestStatusText(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 5, 2, 0, time.Local)
	eta, low := 252.0, 40.0
	st := &control.Status{
		Node: "n1", Job: "46", Time: at, Leader: 812, Version: "1.2", Since: at.Add(-2 * time.Minute),
		Gaps: rss.Gaps{Denied: 1, Vanished: 7},
		Ranks: []control.Rank{
			{Task: 0, Step: "0", PID: 900, Holder: 810, Watcher: 812, Leads: true, Command: "python train.py --lmdb /data/train.lmdb", RSS: 3 * rss.GiB, Anon: rss.GiB, File: 2 * rss.GiB, Procs: 5, Workers: 4, Recycled: 2, Hook: "recycle"},
			{Task: -1, PID: 901, Command: "evil\x1b[31m\nname", RSS: rss.MiB, Procs: 1, Hook: "off", Why: "no torch"},
		},
		Limits: []event.Limit{
			{Name: event.LimitCgroup, Scope: event.ScopeJob, Used: 91 * rss.MiB, UsedMax: 91 * rss.MiB, Limit: 100 * rss.MiB, ETA: &eta, Enforcer: "kernel OOM killer", Binding: true},
			{Name: event.LimitSlurm, Level: "46.0", Used: 50 * rss.MiB, UsedMax: 60 * rss.MiB, Limit: 100 * rss.MiB, Enforcer: "slurmstepd"},
			{Name: event.LimitFDs, Used: 100, UsedMax: 100, Limit: 1024, Enforcer: "EMFILE", PID: 900},
			{Name: event.LimitTime, ETA: &low, Enforcer: "Slurm"},
		},
		Procs:  make([]control.Proc, 6),
		Rules:  []string{"80%:warn", "90%:recycle"},
		DryRun: true,
		Action: &control.Action{Action: event.ActionRecycle, Rule: "90%:recycle", PIDs: []int{910, 911, 912, 913, 914}, Since: at.Add(-3 * time.Second)},
		Last: []control.Outcome{
			{Outcome: event.Outcome{Head: event.Head{Time: at.Add(-time.Minute)}, Decision: 3, OK: true, PID: 909, Freed: 512 * rss.MiB}, Action: event.ActionRecycle, Rule: "90%:recycle"},
			{Outcome: event.Outcome{Head: event.Head{Time: at.Add(-2 * time.Minute)}, Decision: 1<<50 + 1, OK: true, Reason: event.ReasonDone}, Action: event.ActionSignal, Arg: "USR1", Rule: event.AskedFor},
			{Outcome: event.Outcome{Head: event.Head{Time: at.Add(-26 * time.Hour)}, Decision: 2, Reason: event.ReasonNoHelp, Detail: "page cache"}},
		},
	}
	var b strings.Builder
	wardentest.NoError(t, writeStatus(&b, st, 100))
	want := `job 46 on n1: 6 processes
  led by watcher 812 of rsswarden run 810, rank 0 (rsswarden 1.2) since 14:03:02; read at 14:05:02
  1 more process could not be read and are in no sum
  LIMIT       USED                        OF       FULL IN  BY
  cgroup *    91 %  91.0 MiB              100 MiB  4 min    kernel OOM killer
  slurm 46.0  50 %  50.0 MiB to 60.0 MiB  100 MiB           slurmstepd
  fds         10 %  100                   1,024             EMFILE, process 900
  time                                             40 s     Slurm
  * is forecast to end the job first
  RANK  STEP  PID  RSS       ANON      FILE      PROCS  WORKERS   HOOK     COMMAND
  0     0     900  3.00 GiB  1.00 GiB  2.00 GiB  5      4, 2 new  recycle  python train.py --lmdb /…
  -     -     901  1.00 MiB  0 B       0 B       1      0         off      evil�[31m name
  process 901, hook off: no torch
  rules: 80%:warn, 90%:recycle (dry run: none is carried out)
  now: recycle of 910, 911, 912, 2 more, 90%:recycle, since 14:04:59
  14:04:02 recycle (90%:recycle), process 909: done, 512 MiB given back
  14:03:02 signal=USR1 (asked for): done
  2026-11-21 12:05:02 decision 2: not done: cannot help this limit (page cache)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestBindingWords: of the limit that binds first is said what is true of it.
func TestBindingWords(t *testing.T) {
	eta := 60.0
	for _, c := range []struct {
		limit event.Limit
		want  string
	}{
		{event.Limit{Name: event.LimitSlurm, ETA: &eta}, "  * is forecast to end the job first\n"},
		{event.Limit{Name: event.LimitSlurm}, "  * is the fullest limit on memory; no growth is seen\n"},
		{event.Limit{Name: event.LimitUser, ETA: &eta}, "  * is forecast to be full first; by itself it ends nothing, the rules act on it\n"},
		{event.Limit{Name: event.LimitUser}, "  * is the fullest limit on memory; no growth is seen; by itself it ends nothing, the rules act on it\n"},
	} {
		c.limit.Limit, c.limit.Binding = rss.GiB, true
		var b strings.Builder
		writeLimits(&b, &control.Status{Limits: []event.Limit{c.limit}})
		if !strings.HasSuffix(b.String(), c.want) {
			t.Errorf("%s\nwant %s", b.String(), c.want)
		}
	}
}
