package tell

import "time"

// Failure is what a sink could not do, from a goroutine of its own.
type Failure struct{ part, text string }

func (f *Failure) Error() string { return f.text }

// failures queues what sinks could not do.
type failures chan *Failure

// tell queues a failure. Where there is no room it is left out: the status has it.
func (c failures) tell(part, text string) {
	select {
	case c <- &Failure{part, text}:
	default:
	}
}

// Failures yields what sinks could not do, for [Fan.Failed].
func (f *Fan) Failures() <-chan *Failure { return f.failed }

// Failed takes in such a failure. A site that refuses the comment is asked once.
func (f *Fan) Failed(now time.Duration, e *Failure) {
	if e.part == commentPart {
		f.Comment.refused = true
	}
	f.Fault(now, e.part, e)
}
