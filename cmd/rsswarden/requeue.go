package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// requeueJob is the process that puts a job back into the queue. It is no child of
// the command, and goes on when the watcher and the holder have ended.
func requeueJob(p process) int {
	err := supervisor.RequeueJob(os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, supervisor.ErrNoPlan):
		return fail(p, usagef("rsswarden run --at 97%:requeue -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", supervisor.RequeueCommand, err))
	case err != nil:
		fmt.Fprintln(p.stderr, err)
		return 1
	}
	return exitOK
}

func setCheckpointSignal(s *supervisor.Settings, v []string) error {
	s.CheckpointSignal = ""
	if v[0] == "" {
		return nil
	}
	r, err := event.AskBySignal(v[0])
	if err != nil {
		return wrongSignal(err)
	}
	s.CheckpointSignal = r.Arg
	return nil
}

// wrongSignal says what is wrong with a signal that is to ask for a checkpoint.
func wrongSignal(err error) error {
	var bad *event.RuleError
	if errors.As(err, &bad) {
		return wrongf(bad.Hint, " %v", bad)
	}
	return err
}

func setCheckpointFile(s *supervisor.Settings, v []string) error {
	s.CheckpointFile = v[0]
	if v[0] == "" {
		return nil
	}
	path, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.CheckpointFile = path
	return nil
}

func setMaxRequeues(s *supervisor.Settings, v []string) error {
	n, err := strconv.Atoi(v[0])
	if err != nil || n < 1 || n > 1000 {
		return wrongf("give a number from 1 to 1000, such as 3", " %q is not a number of requeues", v[0])
	}
	s.MaxRequeues = n
	return nil
}
