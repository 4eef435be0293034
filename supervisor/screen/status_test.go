package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const mib1 = float64(rss.MiB)

// leaking is a run outside Slurm whose workers leak, 12 s after its start.
func leaking() control.Status {
	at := time.Date(2026, 11, 23, 17, 53, 11, 0, time.UTC)
	proc := func(pid int, role rss.Role, anon, file rss.Bytes, growth float64, trims, recycled int) control.Proc {
		return control.Proc{
			PID: pid, Start: uint64(pid), Parent: 19, Role: role, Task: -1, Comm: "python3", State: "S",
			Memory:       memory((anon+file)*rss.MiB, anon*rss.MiB, file*rss.MiB, 0, growth*mib1),
			WorkerCounts: control.WorkerCounts{Trims: trims, Recycled: recycled}, CanRecycle: role == rss.RoleWorker, CanTrim: role == rss.RoleWorker,
		}
	}
	st := control.Status{
		V: 1, Time: at, Node: "n2", Leader: 18, Version: "v0.7.0", Since: at.Add(-12 * time.Second),
		Ranks: []control.Rank{{Task: -1, PID: 19, Holder: 17, Watcher: 18, Leads: true, Command: "python3 train.py --epochs 3", Since: at.Add(-12 * time.Second), Hook: "recycle", Workers: 3, Procs: 4, Recycled: 3}},
		Limits: limitsOf(
			event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 884 * rss.MiB, Limit: 1100 * rss.MiB, Binding: true, Enforcer: "our own rules"},
			event.Limit{Name: event.LimitNode, Scope: event.ScopeNode, Used: 1843 * rss.MiB, Limit: 24064 * rss.MiB, Enforcer: "kernel OOM killer of the node"},
			event.Limit{Name: event.LimitFDs, Used: 100, Limit: 1024, Enforcer: "kernel, by EMFILE", PID: 19},
		),
		Procs: []control.Proc{
			proc(19, rss.RoleTrainer, 116, 123, 0, 0, 0), proc(47, rss.RoleWorker, 215, 35, 36, 6, 1),
			proc(51, rss.RoleWorker, 192, 33, 33, 7, 1), proc(55, rss.RoleWorker, 135, 35, 26, 5, 1),
		},
		Rules: []string{"80%:warn", "eta<10m:warn", "85%:trim", "90%:recycle", "maps 80%:warn", "fds 80%:warn", "maps 95%:warn", "fds 95%:warn"},
		Ours:  []event.Cost{{Process: "holder", PID: 17, RSS: 9 * rss.MiB}, {Process: "watcher", PID: 18, RSS: 18 * rss.MiB}},
		Saved: &event.Saved{WorkerTrims: 18, Recycled: 3, Actions: []event.ActionSum{
			{Action: event.ActionTrim, Fired: 4, Worked: 4}, {Action: event.ActionRecycle, Fired: 3, Worked: 3, Paused: 0.16},
		}},
		Last: []control.Outcome{{
			Outcome: event.Outcome{Head: event.Head{Time: at.Add(-time.Second)}, OK: true, PID: 37, Freed: 226 * rss.MiB, Paused: 0.02},
			Action:  event.ActionRecycle, Rule: "90%:recycle",
		}},
	}
	st.Limits[0].Growth, st.Limits[1].Growth = seconds64(95*mib1), seconds64(0)
	peak := st.Limits[0].Limit
	peak.Used = 1034 * rss.MiB
	st.Peak = &peak
	return st
}

// inSlurm is a job of four ranks whose limit is forecast to be full.
func inSlurm() control.Status {
	st := scene("n1", 0, 4, 2)
	st.Limits = st.Limits[1:]
	l := &st.Limits[0]
	l.Limit.Limit, l.Used, l.UsedMax, l.ETA, l.Binding = 30*rss.GiB, 24678*rss.MiB, 0, seconds64(720), true
	peak := l.Limit
	peak.Used = peak.Limit.Scale(0.83)
	st.Peak, st.Last[0].Time = &peak, st.Time.Add(-2*time.Minute)
	return st
}

// TestStatus holds what the command status prints, a file each.
func TestStatus(t *testing.T) {
	faster := leaking()
	now := 911 * rss.MiB
	faster.Limits[0].Now = &now
	dry := inSlurm()
	dry.DryRun, dry.Saved = true, &event.Saved{Actions: []event.ActionSum{
		{Action: event.ActionTrim, Skipped: 2, Reasons: map[event.Reason]int{event.ReasonNoHelp: 2}},
		{Action: event.ActionRecycle, Fired: 3, Reasons: map[event.Reason]int{event.ReasonDryRun: 3}},
	}}
	dry.Ranks[1].Hook, dry.Ranks[1].Why = "trim", "torch 2.3 is not known: workers are trimmed, not recycled"
	failed := dry.Time.Add(-time.Minute)
	dry.Alerts = []control.Alerts{{Receiver: "https://h.example", Firing: 1, Sent: 2, Failed: 1, FailedAt: &failed, Error: "no route to host"}}
	dry.Gaps = rss.Gaps{Denied: 1}
	older := leaking()
	older.Peak, older.Saved, older.Version = nil, nil, "v0.6.0"
	for i := range older.Limits {
		older.Limits[i].Growth = nil
	}
	many := []control.Status{inSlurm(), leaking()}
	for i := range 12 {
		st := inSlurm()
		st.Node, st.Job, st.Leader, st.Limits = "n2", "48", 2000+i, nil
		many = append(many, st)
	}
	idle := leaking() // the node is fuller, by others, and less than it is worth to be named
	idle.Limits[0].Used, idle.Limits[0].Binding = 11*rss.MiB, false
	for i := range idle.Limits {
		idle.Limits[i].Binding = idle.Limits[i].Name == event.LimitNode
	}
	none := control.Status{Node: "n1", Time: noon}
	for name, tt := range map[string]struct {
		statuses []control.Status
		width    int
		ascii    bool
		details  bool
	}{
		"several":       {statuses: []control.Status{inSlurm(), leaking()}, width: 80},
		"several-ascii": {statuses: []control.Status{inSlurm(), leaking()}, width: 80, ascii: true},
		"several-20":    {statuses: []control.Status{inSlurm(), leaking()}, width: 20},
		"several-idle":  {statuses: []control.Status{idle, idle}, width: 80},
		"several-many":  {statuses: many, width: 80},
		"details":       {statuses: []control.Status{inSlurm(), leaking()}, width: 80, details: true},
		"one":           {statuses: []control.Status{faster}, width: 80},
		"one-dry":       {statuses: []control.Status{dry}, width: 80},
		"one-20":        {statuses: []control.Status{dry}, width: 20, ascii: true},
		"one-older":     {statuses: []control.Status{older}, width: 80},
		"one-nothing":   {statuses: []control.Status{none}, width: 80},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for i, f := range Status(tt.statuses, text.Style{ASCII: tt.ascii, Width: tt.width}, time.UTC, tt.details) {
				if i > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(f.Text())
			}
			for line := range strings.Lines(b.String()) {
				if text.Columns(strings.TrimSuffix(line, "\n")) > tt.width {
					t.Errorf("%q is wider than %d", line, tt.width)
				}
			}
			golden.Check(t, "testdata/status-"+name+".txt", b.String())
		})
	}
}

// TestTrend: a forecast, else what was measured; the absence of either is no growth of 0.
func TestTrend(t *testing.T) {
	gib := event.Limit{Name: event.LimitCgroup, Limit: 10 * rss.GiB}
	with := func(eta, growth *float64) *control.Limit {
		l := gib
		l.ETA = eta
		return &control.Limit{Limit: l, Measured: control.Measured{Growth: growth}}
	}
	for _, tt := range []struct {
		limit *control.Limit
		want  string
	}{
		{with(seconds64(724), seconds64(95*mib1)), "full 12 min"},
		{with(nil, seconds64(95*mib1)), "+95 MiB/s"},
		{with(nil, seconds64(-2560*mib1)), "-2.5 GiB/s"},
		{with(nil, seconds64(1.8*mib1)), "+1.8 MiB/s"},
		{with(nil, seconds64(1.7*mib1)), "steady"}, // 102 MiB are 1 % of it
		{with(nil, seconds64(0)), "steady"},
		{with(nil, nil), "-"},
		{&control.Limit{Limit: event.Limit{Name: event.LimitFDs, Limit: 1024}, Measured: control.Measured{Growth: seconds64(12)}}, "+12/s"},
		{&control.Limit{Limit: event.Limit{Name: event.LimitTime, ETA: seconds64(7200)}}, "ends 2.0 h"},
	} {
		if got := Trend(tt.limit); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.limit, got, tt.want)
		}
	}
}
