package tell

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
