package tell

import (
	"errors"
	"os/exec"
	"testing"
	"time"
)

// refusing is a job whose scontrol cannot be started.
func refusing(*exec.Cmd) error { return errors.New("cannot start scontrol") }

// TestCommentDue: when a warning is first crossed, three times in a run and five minutes
// apart.
func TestCommentDue(t *testing.T) {
	s := newStand(t)
	c := &s.Comment
	c.DryRun = true
	for i, step := range []struct {
		at            time.Duration
		crossed, want bool
	}{
		{0, true, true}, {time.Second, true, false}, {2 * time.Second, false, false}, {3 * time.Second, true, false},
		{4 * time.Second, false, false}, {commentEvery, true, true}, {2 * commentEvery, true, false}, // crossed all the time
		{3 * commentEvery, false, false}, {3 * commentEvery, true, true}, {4 * commentEvery, false, false}, {4 * commentEvery, true, false},
	} {
		due := c.Warned(step.at, step.crossed)
		if due != step.want {
			t.Errorf("%d: due %v", i, due)
		}
		if due {
			s.CommentWarning(step.at, "46", "memory 85 %")
		}
	}
	if n := s.said.count("would write into the comment of job 46: rsswarden: memory 85 % (dry run)"); n != mostComments {
		t.Errorf("%d lines: %q", n, s.said.all)
	}
}

// TestCommentRefused: what fails is told once, and not tried again; where the queue of
// failures is full it is counted.
func TestCommentRefused(t *testing.T) {
	for name, full := range map[string]bool{"told": false, "no room": true} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.Comment.Start = refusing
			for full && len(s.failed.queue) < cap(s.failed.queue) {
				s.failed.tell("alert", "of another")
			}
			if !s.Comment.Warned(0, true) {
				t.Fatal("not due")
			}
			s.CommentWarning(0, "46", "memory 85 %")
			<-s.Comment.writing.over
			s.Failed(0, <-s.Failures())
			want := map[bool]string{false: "alert-comment: ", true: "1 failure not shown: too many at once"}[full]
			if n := s.said.count(want); n != 1 {
				t.Errorf("%d lines: %q", n, s.said.all)
			}
			s.Comment.Warned(time.Minute, false)
			if s.Comment.Warned(time.Hour, true) || !s.Comment.Refused() {
				t.Error("tried again")
			}
		})
	}
}

// TestLastCommentWaits: the last words come after what is being written, and not at all
// where that takes too long.
func TestLastCommentWaits(t *testing.T) {
	s := newStand(t)
	s.Comment.Start = refusing
	before := &writing{over: make(chan struct{})}
	s.Comment.writing = before
	s.LastComment("46", "ended, fine", time.Millisecond)()
	if len(s.said.all) != 0 {
		t.Errorf("written beside another: %q", s.said.all)
	}
	write := s.LastComment("46", "ended, fine", time.Minute)
	close(before.over)
	if write(); s.said.count("alert-comment: ") != 1 {
		t.Errorf("%q", s.said.all)
	}
}
