package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// wrongValue says what is wrong with a value. What stands in front of it names
// the option as the user wrote it.
type wrongValue struct {
	says, hint string
}

func (e *wrongValue) Error() string { return e.says }

func wrongf(hint, format string, args ...any) error {
	return &wrongValue{says: fmt.Sprintf(format, args...), hint: hint}
}

func setLimit(s *supervisor.Settings, v []string) error {
	const hint = "give a size as in sbatch --mem, such as 3G, or a share of the limit found, above 0% and at most 100%, such as 90%"
	s.Limit, s.LimitShare = 0, 0
	if v[0] == "" {
		return nil
	}
	if share, ok := strings.CutSuffix(v[0], "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(f > 0 && f <= 100) {
			return wrongf(hint, " %q is not a share of a limit", v[0])
		}
		s.LimitShare = f / 100
		return nil
	}
	b, err := rss.ParseBytes(v[0])
	if err != nil || b == 0 {
		return wrongf(hint, " %q is not a size", v[0])
	}
	s.Limit = b
	return nil
}

func setRecord(s *supervisor.Settings, v []string) error {
	s.Record = v[0]
	if v[0] == "" {
		s.Record = supervisor.RecordAuto
	}
	if s.Record == supervisor.RecordAuto || s.Record == supervisor.RecordNone {
		return nil
	}
	dir, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.Record = dir
	return nil
}

// record makes the place of the record, for as long as a file system may take to answer:
// no job stays away for that.
func (src *sources) record(v chosen, s *supervisor.Settings) {
	if s.Record == supervisor.RecordAuto || s.Record == supervisor.RecordNone {
		return
	}
	q := looking{What: asideRecord, Path: []byte(s.Record)}
	err := q.ask()
	var unanswered *hold.UnansweredError
	if errors.As(err, &unanswered) {
		err = fmt.Errorf("%s: %w", s.Record, err)
	}
	if err == nil {
		return
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Record = supervisor.RecordAuto
		return
	}
	s.RecordFault = err.Error()
	kept := "; the journal is kept"
	// That of an attach lies where its target's environment says.
	if journals := record.DefaultPlaces(src.p.lookup, os.Geteuid()).Journals; len(journals) > 0 && src.c.Command.Name == "run" {
		kept += ", in " + journals[0]
	}
	src.warnf("%s %q: there is no full record of this run: %v%s; give a directory on a disk of this node, as --record $TMPDIR, or leave it out", v.name, v, err, kept)
}

// setLadder puts the rules in as text: the defaults and what --at adds.
func setLadder(s *supervisor.Settings, at []string) error {
	rules, err := policy.Ladder(at)
	if err != nil {
		hint := "a rule looks like 85%:trim"
		var bad *event.RuleError
		if errors.As(err, &bad) {
			hint = bad.Hint
			if guess := meantRule(bad.Rule); guess != "" {
				hint = guess
			}
		}
		return wrongf(hint, ": %v", err)
	}
	s.Rules = rules
	return nil
}

func setWorkerSignal(s *supervisor.Settings, v []string) error {
	s.WorkerSignal = 0
	if v[0] == "" {
		return nil
	}
	n, err := event.ParseSignal(v[0])
	if err != nil {
		return wrongf("name a signal, such as TERM or USR1", ": %v", err)
	}
	s.WorkerSignal = int(n)
	return nil
}

func setWorkerMatch(s *supervisor.Settings, v []string) error {
	if _, err := regexp.Compile(v[0]); err != nil {
		return wrongf("see https://pkg.go.dev/regexp/syntax; such as 'my_pool worker'", ": %v", err)
	}
	s.WorkerMatch = v[0]
	return nil
}

func setStopStatus(s *supervisor.Settings, v []string) error {
	n, err := strconv.Atoi(v[0])
	if err != nil || n < 0 || n > 255 {
		return wrongf("give a number from 0 to 255, such as 85", " %q is not an exit status", v[0])
	}
	s.StopStatus = n
	return nil
}

// setCount sets a number of at least 1, or none where the value is empty.
func setCount(what, example string, most int, set func(*supervisor.Settings, int)) func(*supervisor.Settings, []string) error {
	return func(s *supervisor.Settings, v []string) error {
		n := 0
		if v[0] != "" {
			var err error
			if n, err = strconv.Atoi(v[0]); err != nil || n < 1 || n > most {
				return wrongf(fmt.Sprintf("give a number from 1 to %d, such as %s", most, example), " %q is not %s", v[0], what)
			}
		}
		set(s, n)
		return nil
	}
}

func setTruth(to *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil && v != "" {
		return wrongf("write true or false", " %q is neither true nor false", v)
	}
	*to = b
	return nil
}

func setDuration(to *time.Duration, v string, least, most time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		hint := "give a number with a unit, such as 500ms or 2s"
		if _, err := strconv.ParseFloat(v, 64); err == nil {
			hint = "give the number a unit: " + v + "s are seconds, " + v + "ms thousandths"
		}
		return wrongf(hint, " %q is not a duration", v)
	}
	if d < least || d > most {
		return wrongf("give a duration from "+least.String()+" to "+most.String(), " %s is out of range", v)
	}
	*to = d
	return nil
}

func oneOf(v string, values ...string) error {
	for _, want := range values {
		if v == want {
			return nil
		}
	}
	hint := "write one of them, such as " + values[0]
	if near := text.Similar(v, values); near != "" {
		hint = "did you mean " + near + "?"
	}
	return wrongf(hint, " %q is none of %s", v, alternatives(values, "and"))
}

// alternatives lists words: "a, b or c".
func alternatives(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}
