package tell

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// raised is the rung of a warning at 80 % that is crossed.
func raised(t *testing.T) []policy.Raised {
	t.Helper()
	r, err := event.ParseRule("80%:warn")
	wardentest.NoError(t, err)
	return []policy.Raised{{Rule: r, Name: event.LimitUser, Limit: crossed(true)}}
}

// TestLastWordsOnAlerts: alerts are counted, not what became of them on the way, and an
// answer that was not waited for counts as neither sent nor lost.
func TestLastWordsOnAlerts(t *testing.T) {
	for want, is := range map[string]alert.ReceiverState{
		"": {Sent: 9, Error: "an old one"},
		"the last state of 2 alerts was sent to webhook+https://h/…, which has not answered yet":                          {Untold: 2, Asked: true},
		"the last state of 1 alert was sent to webhook+https://h/… without waiting; it failed before: connection refused": {Untold: 1, Asked: true, Failing: true, Error: "connection refused", Failed: 7},
		"webhook+https://h/… did not get the last state of 1 alert: HTTP status 403":                                      {Untold: 1, Failing: true, Error: "HTTP status 403"},
		"webhook+https://h/… did not get 2 earlier states: connection refused":                                            {Lost: 2, Error: "connection refused"},
	} {
		is.Target = alert.Target{Kind: alert.Webhook, URL: "https://h/x"}
		if got := strings.Join(lastWordsOf(&is), "\n"); strings.TrimPrefix(got, "alert: ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAlertsDryRun: a line for each crossing, and none while it lasts.
func TestAlertsDryRun(t *testing.T) {
	s := newStand(t)
	s.set.Alerts, s.set.DryRun = []alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}}, true
	s.Alerts.Open(AlertOptions{}, 0)
	for i, current := range [][]policy.Raised{raised(t), raised(t), nil, raised(t)} {
		s.Alerts.Raise(time.Duration(i)*time.Minute, current, nil)
	}
	if n := s.said.count("would alert webhook+https://h/…: "); n != 2 || len(s.said.all) != 2 {
		t.Errorf("%q", s.said.all)
	}
	s.Alerts.Close(true)
	if s.Alerts.Last(); s.Alerts.OpenIDs() != "" || s.Alerts.Receivers() != nil {
		t.Error("a dry run has receivers")
	}
}

// TestAlertFailure: a receiver that begins to fail is reported as a fault, once.
func TestAlertFailure(t *testing.T) {
	s := newStand(t)
	s.set.Alerts, s.set.AlertProgram = []alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}}, "/nonexistent"
	s.Alerts.Open(AlertOptions{Start: (*exec.Cmd).Start}, 0)
	s.Alerts.Raise(0, raised(t), nil)
	select {
	case e := <-s.Failures():
		s.Failed(0, e)
		s.Failed(0, e)
	case <-time.After(time.Minute):
		t.Fatal("no failure")
	}
	s.Alerts.Close(false)
	const want = "webhook+https://h/…: cannot start /nonexistent"
	if n := s.said.count("alert: " + want); n != 1 {
		t.Errorf("%q", s.said.all)
	}
	if all := s.events(); len(all) != 1 || all[0]["part"] != "alert" || !strings.Contains(fmt.Sprint(all[0]["error"]), want) {
		t.Errorf("%v", all)
	}
}

// TestAlertStep: an alert names the step that its limit is of.
func TestAlertStep(t *testing.T) {
	for _, test := range []struct {
		name  event.LimitName
		scope event.Scope
		level string
		want  string
	}{
		{event.LimitSlurm, event.ScopeStep, "", "7"},
		{event.LimitSlurm, event.ScopeStep, "46.batch", "batch"},
		{event.LimitSlurm, event.ScopeJob, "", ""},
		{event.LimitCgroup, event.ScopeStep, "/sys/fs/cgroup/memory/slurm/uid_1/job_46/step_0/task_0", "0"},
		{event.LimitCgroup, event.ScopeJob, "/sys/fs/cgroup/memory/slurm/uid_1/job_46", ""},
		{event.LimitUser, event.ScopeTree, "", "7"},
		{event.LimitMaps, event.ScopeProcess, "", "7"},
		{event.LimitNode, event.ScopeNode, "", ""},
		{event.LimitTime, event.ScopeJob, "", ""},
	} {
		if got := stepOf(&policy.Raised{Name: test.name, Scope: test.scope, Level: test.level}, "7"); got != test.want {
			t.Errorf("%s of %s at %q: step %q, want %q", test.name, test.scope, test.level, got, test.want)
		}
	}
}

// refusing is a job whose scontrol cannot be started.
func refusing(*exec.Cmd) error { return errors.New("cannot start scontrol") }

// crossed is a limit whose warning is crossed, nil for not.
func crossed(yes bool) *event.Limit {
	if !yes {
		return nil
	}
	return &event.Limit{Name: event.LimitUser, Used: 85, Limit: 100}
}

// TestCommentDue: when a warning is first crossed, three times in a run and five minutes
// apart.
func TestCommentDue(t *testing.T) {
	s := newStand(t)
	c := &s.Alerts.Comment
	s.set.DryRun, c.job = true, "46"
	for i, step := range []struct {
		at            time.Duration
		crossed, want bool
	}{
		{0, true, true}, {time.Second, true, false}, {2 * time.Second, false, false}, {3 * time.Second, true, false},
		{4 * time.Second, false, false}, {commentEvery, true, true}, {2 * commentEvery, true, false}, // crossed all the time
		{3 * commentEvery, false, false}, {3 * commentEvery, true, true}, {4 * commentEvery, false, false}, {4 * commentEvery, true, false},
	} {
		before := c.written
		s.Alerts.Comment.warning(step.at, crossed(step.crossed), alert.Plenty)
		if due := c.written > before; due != step.want {
			t.Errorf("%d: due %v", i, due)
		}
	}
	if n := s.said.count("would set the comment of job 46: rsswarden: memory 85 % of 100 B on n1 at "); n != mostComments {
		t.Errorf("%d lines: %q", n, s.said.all)
	}
}

// TestCommentRefused: a failure is reported once, and not tried again; where the queue of
// failures is full it is counted.
func TestCommentRefused(t *testing.T) {
	for name, full := range map[string]bool{"told": false, "no room": true} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.Alerts.Comment.start, s.Alerts.Comment.job = refusing, "46"
			for full && len(s.failed.queue) < cap(s.failed.queue) {
				s.failed.tell("alert", "of another")
			}
			s.Alerts.Comment.warning(0, crossed(true), alert.Plenty)
			<-s.Alerts.Comment.writing.over
			s.Failed(0, <-s.Failures())
			want := map[bool]string{false: "alert-comment: ", true: "1 failure not shown: too many at once"}[full]
			if n := s.said.count(want); n != 1 {
				t.Errorf("%d lines: %q", n, s.said.all)
			}
			s.Alerts.Comment.warning(time.Minute, nil, alert.Plenty)
			if s.Alerts.Comment.warning(time.Hour, crossed(true), alert.Plenty); s.Alerts.Comment.written != 1 || !s.Alerts.Comment.refused() {
				t.Error("tried again")
			}
		})
	}
}

// TestLastCommentWaits: the last words come after what is being written, and not at all
// where that takes too long.
func TestLastCommentWaits(t *testing.T) {
	s := newStand(t)
	s.Alerts.Comment.start, s.Alerts.Comment.job = refusing, "46"
	before := &writing{over: make(chan struct{})}
	s.Alerts.Comment.writing = before
	s.Alerts.Comment.Last(&event.Exit{Brief: event.Brief{Outcome: event.RunOK}}, -1, time.Millisecond)()
	if len(s.said.all) != 0 {
		t.Errorf("written beside another: %q", s.said.all)
	}
	write := s.Alerts.Comment.Last(&event.Exit{Brief: event.Brief{Outcome: event.RunOK}}, -1, time.Minute)
	close(before.over)
	if write(); s.said.count("alert-comment: ") != 1 {
		t.Errorf("%q", s.said.all)
	}
}
