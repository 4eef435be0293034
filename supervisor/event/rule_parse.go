package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// RuleError says which part of a rule is wrong and what could stand there.
type RuleError struct {
	Rule string // as written; empty for what is no rule, such as a signal alone
	Part string // the part of it that is wrong
	Why  string // "unknown action"
	Hint string // one sentence with what to write, for the hint: line
}

func (e *RuleError) Error() string {
	if e.Rule == "" {
		return fmt.Sprintf("%q: %s", e.Part, e.Why)
	}
	if e.Part == "" {
		return fmt.Sprintf("cannot read rule %q: %s", e.Rule, e.Why)
	}
	return fmt.Sprintf("cannot read rule %q: %q: %s", e.Rule, e.Part, e.Why)
}

const (
	rank0Suffix = "@rank0"
	ruleShape   = "a rule is [LIMIT ]COND:ACTION, such as 85%:trim, free<2G:recycle or 93%:signal=USR2"
	condShape   = "a condition is N%, free<SIZE or eta<DURATION, such as 85%, free<2G or eta<10m"
)

// ParseRule reads [LIMIT " "] COND ":" ACTION, where COND is N%, free<SIZE or
// eta<DURATION, SIZE as in sbatch --mem and DURATION as Go writes it ("1h30m").
// Its errors are of type [*RuleError].
func ParseRule(s string) (Rule, error) { return parseRule(s, Actions) }

// MarshalText gives the rule as [ParseRule] reads it.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseRule].
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRule(string(text))
	return err
}

// ParseRecorded reads a rule of a record, which may have an action of a former
// version.
func ParseRecorded(s string) (Rule, error) { return parseRule(s, RecordedActions) }

func parseRule(s string, actions []Action) (Rule, error) {
	bad := func(part, why, hint string) (Rule, error) {
		return Rule{}, &RuleError{Rule: s, Part: part, Why: why, Hint: hint}
	}
	if strings.TrimSpace(s) == "" {
		return Rule{}, &RuleError{Rule: s, Part: s, Why: "the rule is empty", Hint: ruleShape}
	}
	when, what, ok := strings.Cut(s, ":")
	if !ok {
		return bad("", "it has no action", ruleShape)
	}
	var r Rule
	fields := strings.Fields(when)
	switch len(fields) {
	case 0:
		return bad("", "it has no condition", ruleShape)
	case 1:
	case 2:
		r.Limit = LimitName(fields[0])
		if !slices.Contains(Limits, r.Limit) {
			return bad(fields[0], "unknown limit", "limits are "+list(Limits))
		}
	default:
		return bad(strings.TrimSpace(when), "too many words", ruleShape)
	}
	cond, why, hint := parseCond(fields[len(fields)-1])
	if why == "" {
		why, hint = misplaced(r.Limit, cond.Kind)
	}
	if why != "" {
		return bad(fields[len(fields)-1], why, hint)
	}
	r.Cond = cond
	what = strings.TrimSpace(what)
	if r.Action, r.Arg, why, hint = parseAction(what, actions); why != "" {
		return bad(what, why, hint)
	}
	if r.Limit == LimitTime && r.Action.Acts() {
		return bad(what, "it gives the job no more time", "before the job's end write warn, signal=SIG or exec=COMMAND, such as 'time eta<10m:signal=USR2'")
	}
	return r, nil
}

func parseCond(s string) (c Cond, why, hint string) {
	if n, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(n, 64)
		if err != nil || strings.Trim(n, "0123456789.") != "" {
			return c, "not a percentage", condShape
		}
		if p <= 0 || p > 100 {
			return c, "out of range", "a percentage is above 0 and at most 100"
		}
		return Cond{Kind: KindPercent, Percent: p}, "", ""
	}
	if n, ok := strings.CutPrefix(s, "free<"); ok {
		b, err := rss.ParseBytes(n)
		if err != nil {
			return c, "not a size", "a size is a number with K, M, G or T, such as free<2G; without a suffix it is in MiB"
		}
		if b == 0 {
			return c, "the size is 0", "less than nothing is never free; write free<512M or 100%"
		}
		return Cond{Kind: KindFree, Free: b}, "", ""
	}
	if n, ok := strings.CutPrefix(s, "eta<"); ok {
		d, err := time.ParseDuration(n)
		if err != nil {
			return c, "not a duration", "a duration has units, such as eta<90s, eta<10m or eta<1h30m"
		}
		if d <= 0 {
			return c, "the duration is not above 0", "a duration has units, such as eta<90s, eta<10m or eta<1h30m"
		}
		return Cond{Kind: KindETA, ETA: d}, "", ""
	}
	return c, "not a condition", condShape
}

// misplaced refuses conditions that mean nothing for a limit.
func misplaced(l LimitName, k Kind) (why, hint string) {
	switch {
	case l == LimitTime && k != KindETA:
		return "the time limit has no size", "for the job's end write eta<DURATION, such as 'time eta<10m:warn'"
	case k == KindFree && l.Counts():
		return string(l) + " is counted, not sized", "write a percentage, such as '" + string(l) + " 80%:warn'"
	}
	return "", ""
}

func parseAction(s string, actions []Action) (a Action, arg, why, hint string) {
	name, arg, hasArg := strings.Cut(s, "=")
	a, arg = Action(strings.TrimSpace(name)), strings.TrimSpace(arg)
	if !slices.Contains(actions, a) {
		switch {
		case a == "":
			why = "no action"
		case a.row().former:
			return a, arg, "this action was removed", "write trim; to drop files from the page cache, run rsswarden trim --drop"
		default:
			why = "unknown action"
		}
		return a, arg, why, "actions are " + list(Actions)
	}
	if read := a.row().arg; read != nil {
		arg, why, hint = read(arg, hasArg)
	} else if hasArg {
		why, hint = "this action takes no value", "write "+string(a)+" alone"
	}
	return a, arg, why, hint
}

func list[T ~string](names []T) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}
