package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// hysteresis is how many points of used over limit a rung must be left by
	// before it is armed again.
	hysteresis   = 5.0
	minGain      = 16 * rss.MiB
	minGainShare = 0.05
)

// Kind is the form of a condition.
type Kind int

// The forms of a condition.
const (
	KindPercent Kind = iota + 1 // N%: used is at least N percent of the limit
	KindFree                    // free<SIZE: less than SIZE is left
	KindETA                     // eta<DURATION: the limit is forecast to be reached sooner
)

// Cond is the condition of a rule. Only the field of its Kind is set.
type Cond struct {
	Kind    Kind
	Percent float64 // above 0, at most 100
	Free    rss.Bytes
	ETA     time.Duration
}

// String gives the condition as [ParseRule] reads it.
func (c Cond) String() string {
	switch c.Kind {
	case KindPercent:
		return strconv.FormatFloat(c.Percent, 'f', -1, 64) + "%"
	case KindFree:
		return "free<" + formatSize(c.Free)
	case KindETA:
		return "eta<" + formatDuration(c.ETA)
	}
	return ""
}

// Rule is one rung of the ladder: WHEN:ACTION.
type Rule struct {
	// Limit is the limit the rule looks at; empty means any of cgroup, slurm,
	// user and node.
	Limit  LimitName
	Cond   Cond
	Action Action
	// Arg is what stands behind the action's "=": "USR2@rank0", a command.
	Arg string
}

// String gives the rule as [ParseRule] reads it: "slurm 85%:trim".
func (r Rule) String() string {
	s := r.Cond.String() + ":" + string(r.Action)
	if r.Limit != "" {
		s = string(r.Limit) + " " + s
	}
	if r.Arg != "" {
		s += "=" + r.Arg
	}
	return s
}

// Matches says whether the rule looks at that limit.
func (r Rule) Matches(name LimitName) bool {
	if r.Limit != "" {
		return r.Limit == name
	}
	return name.row().Ladder
}

// Signal returns the signal of a signal= rule, and whether it goes to the
// trainer of rank 0 alone. ok is false for every other action.
func (r Rule) Signal() (sig syscall.Signal, rank0, ok bool) {
	if r.Action != ActionSignal {
		return 0, false, false
	}
	name, rank0 := strings.CutSuffix(r.Arg, rank0Suffix)
	sig, err := ParseSignal(name)
	return sig, rank0, err == nil
}

// At is the use at which the rule's rung is for a limit of that size.
// ok is false where the condition has no place on that scale: a forecast, or
// more to be left free than the whole limit.
func (r Rule) At(limit rss.Bytes) (at rss.Bytes, ok bool) {
	switch r.Cond.Kind {
	case KindPercent:
		return limit.Scale(r.Cond.Percent / 100), true
	case KindFree:
		// free < SIZE, so one byte above limit − SIZE.
		return limit.Sub(r.Cond.Free) + 1, r.Cond.Free < limit
	}
	return 0, false
}

// Rearm is the use below which the rung counts as left again: five points of
// used over limit below, or twice what the rule wants to be free. A rung so
// low, or a size so large, that this could never come takes half the way.
func (r Rule) Rearm(limit rss.Bytes) rss.Bytes {
	switch r.Cond.Kind {
	case KindPercent:
		p := r.Cond.Percent
		return limit.Scale(max(p-hysteresis, p/2) / 100)
	case KindFree:
		free := r.Cond.Free
		return limit.Sub(min(2*free, free+limit.Sub(free)/2))
	}
	return 0
}

// Need is how much must be given back for the rung to count as left: 0 for a
// forecast, which says nothing about amounts.
func (r Rule) Need(l *Limit) rss.Bytes {
	if r.Cond.Kind == KindETA {
		return 0
	}
	return l.Used.Sub(r.Rearm(l.Limit))
}

// MinGain is the least that an action must give back to be worth it where need
// bytes are wanted: 16 MiB or 5 % of need, whichever is more.
func MinGain(need rss.Bytes) rss.Bytes {
	return max(minGain, need.Scale(minGainShare))
}

// Worth is the least that a rule's action must give back to be worth it. A recycle
// gives back one worker's part of what is wanted, and the next another's: of many
// workers none has 5 % of it. Of a trim as much is enough as is left for certain.
func (r Rule) Worth(l *Limit) rss.Bytes {
	worth := MinGain(r.Need(l))
	if of := r.Action.row().worth; of != nil {
		return of(l, worth)
	}
	return worth
}

// Again is what a trim that helped must be able to give back for it to be repeated though
// its rung was not left, where PSS is summed and the use after it is unknown:
// as much as use must have grown by where that is known, 5 points of the limit, or half of
// what is left for certain. Trims hold a job that maps and maps, and the rest may be mapped
// long before the rung would be tried again.
func (r Rule) Again(l *Limit) rss.Bytes { return max(r.Worth(l), Regrown(l)) }

// Regrown is by how much a limit must have grown for a rung that was not left to fire again.
func Regrown(l *Limit) rss.Bytes { return min(l.Limit.Scale(hysteresis/100), surelyLeft(l)/2) }

// surelyLeft is what is left of a limit for certain.
func surelyLeft(l *Limit) rss.Bytes { return l.Limit.Sub(max(l.Used, l.UsedMax)) }

// MinRecycle is the least that one worker must give back to be worth replacing where
// the job is about to be killed: 16 MiB, or 0.5 % of a limit below 3.2 GiB. Sixteen
// workers that may each keep 16 MiB keep a quarter of a limit of 1 GiB.
// For a limit of unknown size it is 16 MiB.
func MinRecycle(l *Limit) rss.Bytes {
	if l.Limit == 0 {
		return minGain
	}
	return min(minGain, l.Limit/200)
}

func formatSize(b rss.Bytes) string {
	for _, u := range []struct {
		size rss.Bytes
		name string
	}{{rss.TiB, "T"}, {rss.GiB, "G"}, {rss.MiB, "M"}, {rss.KiB, "K"}} {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatUint(uint64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10) + "B"
}

func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// RuleError says which part of a rule is wrong and what could stand there.
type RuleError struct {
	Rule string // as written; empty for what is no rule, such as a signal alone
	Part string // the part of it that is wrong
	Why  string // "unknown action"
	Hint string // one sentence with what to write, for the hint: line
}

func (e *RuleError) Error() string {
	s := e.Why
	if e.Part != "" || e.Rule == "" {
		s = fmt.Sprintf("%q: %s", e.Part, s)
	}
	if e.Rule != "" {
		s = fmt.Sprintf("cannot read rule %q: %s", e.Rule, s)
	}
	return s
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
	r, bad := readRule(s, actions)
	if bad != nil {
		bad.Rule = s
		return Rule{}, bad
	}
	return r, nil
}

func wrong(part, why, hint string) *RuleError { return &RuleError{Part: part, Why: why, Hint: hint} }

func readRule(s string, actions []Action) (r Rule, bad *RuleError) {
	when, what, ok := strings.Cut(s, ":")
	words := strings.Fields(when)
	switch {
	case strings.TrimSpace(s) == "":
		return r, wrong(s, "the rule is empty", ruleShape)
	case !ok:
		return r, wrong("", "it has no action", ruleShape)
	case len(words) == 0:
		return r, wrong("", "it has no condition", ruleShape)
	case len(words) > 2:
		return r, wrong(strings.TrimSpace(when), "too many words", ruleShape)
	case len(words) == 2:
		if r.Limit = LimitName(words[0]); !slices.Contains(Limits, r.Limit) {
			return r, wrong(words[0], "unknown limit", "limits are "+list(Limits))
		}
	}
	if r.Cond, bad = parseCond(words[len(words)-1], r.Limit); bad != nil {
		return r, bad
	}
	what = strings.TrimSpace(what)
	if r.Action, r.Arg, bad = parseAction(what, actions); bad != nil {
		return r, bad
	}
	if r.Limit == LimitTime && r.Action.Acts() {
		return r, wrong(what, "it gives the job no more time", "before the job's end write warn, signal=SIG or exec=COMMAND, such as 'time eta<10m:signal=USR2'")
	}
	return r, nil
}

// parseCond reads a condition on a limit, empty for those of the ladder.
func parseCond(s string, of LimitName) (c Cond, bad *RuleError) {
	const etaShape = "a duration has units, such as eta<90s, eta<10m or eta<1h30m"
	if n, ok := strings.CutPrefix(s, "eta<"); ok {
		d, err := time.ParseDuration(n)
		switch {
		case err != nil:
			return c, wrong(s, "not a duration", etaShape)
		case d <= 0:
			return c, wrong(s, "the duration is not above 0", etaShape)
		}
		return Cond{Kind: KindETA, ETA: d}, nil
	}
	if n, ok := strings.CutSuffix(s, "%"); ok {
		p, err := parsePercent(n)
		switch {
		case err != nil:
			return c, wrong(s, "not a percentage", condShape)
		case p <= 0 || p > 100:
			return c, wrong(s, "out of range", "a percentage is above 0 and at most 100")
		}
		c = Cond{Kind: KindPercent, Percent: p}
	} else if n, ok := strings.CutPrefix(s, "free<"); ok {
		b, err := rss.ParseBytes(n)
		switch {
		case err != nil:
			return c, wrong(s, "not a size", "a size is a number with K, M, G or T, such as free<2G; without a suffix it is in MiB")
		case b == 0:
			return c, wrong(s, "the size is 0", "less than nothing is never free; write free<512M or 100%")
		case of.Counts():
			return c, wrong(s, string(of)+" is counted, not sized", "write a percentage, such as '"+string(of)+" 80%:warn'")
		}
		c = Cond{Kind: KindFree, Free: b}
	} else {
		return c, wrong(s, "not a condition", condShape)
	}
	if of == LimitTime {
		return c, wrong(s, "the time limit has no size", "for the job's end write eta<DURATION, such as 'time eta<10m:warn'")
	}
	return c, nil
}

// parsePercent reads a number of digits and a point, without sign and exponent.
func parsePercent(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

func parseAction(s string, actions []Action) (a Action, arg string, bad *RuleError) {
	name, arg, hasArg := strings.Cut(s, "=")
	a, arg = Action(strings.TrimSpace(name)), strings.TrimSpace(arg)
	read := a.row().arg
	switch {
	case slices.Contains(actions, a) && read != nil:
		if arg, bad = read(arg, hasArg); bad != nil {
			bad.Part = s
		}
	case slices.Contains(actions, a) && hasArg:
		bad = wrong(s, "this action takes no value", "write "+string(a)+" alone")
	case slices.Contains(actions, a):
	case a == "":
		bad = wrong(s, "no action", "actions are "+list(Actions))
	case a.row().former:
		bad = wrong(s, "this action was removed", "write trim; to drop files from the page cache, run rsswarden trim --drop")
	default:
		bad = wrong(s, "unknown action", "actions are "+list(Actions))
	}
	return a, arg, bad
}

func list[T ~string](names []T) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

// The real-time signals a program may use, as glibc hands them out (signal(7)):
// the kernel's first two are its own.
const (
	rtMin = 34
	rtMax = 64
)

// signals names Linux's signals 1 to 31 (signal(7)).
var signals = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
	11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP",
	20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH",
	29: "IO", 30: "PWR", 31: "SYS",
}

// ParseSignal reads a signal as people write it: USR2, SIGUSR2, usr2, 12,
// RTMIN+3, RTMAX-1. Its errors are of type [*RuleError], for their hint.
func ParseSignal(s string) (syscall.Signal, error) {
	sig, bad := parseSignal(s)
	if bad != nil {
		return 0, bad
	}
	return sig, nil
}

func parseSignal(s string) (syscall.Signal, *RuleError) {
	const hint = "signals are written USR2, SIGUSR2, 12 or RTMIN+3"
	if s == "" {
		return 0, wrong(s, "no signal", hint)
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		if n < 1 || n >= uint64(len(signals)) && n < rtMin || n > rtMax {
			return 0, wrong(s, fmt.Sprintf("no signal has the number %d", n), hint)
		}
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if n := slices.Index(signals[:], name); n > 0 {
		return syscall.Signal(n), nil
	}
	if sig, ok := signalAliases[name]; ok {
		return sig, nil
	}
	if n, ok := offset(name, "RTMIN+"); ok {
		return syscall.Signal(rtMin + n), nil
	}
	if n, ok := offset(name, "RTMAX-"); ok {
		return syscall.Signal(rtMax - n), nil
	}
	return 0, wrong(s, "unknown signal", hint)
}

var signalAliases = map[string]syscall.Signal{
	"POLL": syscall.SIGIO, "IOT": syscall.SIGABRT, "RTMIN": rtMin, "RTMAX": rtMax,
}

// AskBySignal reads the signal that asks for a checkpoint, and its receiver: USR2,
// USR2@rank0. Of the rule that it returns only the action means something. Its errors are of
// type [*RuleError], about the signal alone.
func AskBySignal(s string) (Rule, error) {
	a, arg, bad := parseAction(string(ActionSignal)+"="+s, Actions)
	if bad == nil {
		return Rule{Cond: Cond{Kind: KindPercent, Percent: 100}, Action: a, Arg: arg}, nil
	}
	if sig, err := ParseSignal(s); err == nil && uncatchable(sig) {
		bad.Hint = "name one that a program can catch, such as USR1 or USR2"
	}
	bad.Part = s
	return Rule{}, bad
}

func offset(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseUint(digits, 10, 8)
	return int(n), ok && err == nil && n <= rtMax-rtMin
}

// SignalName gives the name without SIG: "USR2", "RTMIN+3".
func SignalName(sig syscall.Signal) string {
	n := int(sig)
	switch {
	case n > 0 && n < len(signals):
		return signals[n]
	case n == rtMin:
		return "RTMIN"
	case n > rtMin && n <= rtMax:
		return "RTMIN+" + strconv.Itoa(n-rtMin)
	}
	return strconv.Itoa(n)
}

func uncatchable(sig syscall.Signal) bool {
	return sig == syscall.SIGKILL || sig == syscall.SIGSTOP
}

const (
	// requeueShare is what a requeued job gets on top where the rule does not say.
	requeueShare = 0.25
	// mostRequeueShare bounds that, in percent: more is a typing error.
	mostRequeueShare = 1000
	requeueAdvice    = "advice"
	requeueHint      = "write requeue alone for 25 % more, requeue=+50%, requeue=SIZE such as requeue=12G, or requeue=advice"
)

// More says with how much memory a requeue= rule starts the job again. One
// field is set.
type More struct {
	Share  float64   // on top of what it has, 0.25 for 25 % more
	Size   rss.Bytes // in all, on each node
	Advice bool      // as --advise would have it
}

// More returns what a requeue= rule asks for. ok is false for every other action.
func (r Rule) More() (m More, ok bool) {
	if r.Action != ActionRequeue {
		return More{}, false
	}
	m, _, bad := parseMore(r.Arg)
	return m, bad == nil
}

// parseMore reads what stands behind requeue=, and gives it back as it is shown:
// "+25%", "12G", "advice"; empty where nothing stands there.
func parseMore(s string) (m More, shown string, bad *RuleError) {
	switch s {
	case "":
		return More{Share: requeueShare}, "", nil
	case requeueAdvice:
		return More{Advice: true}, s, nil
	}
	if n, ok := strings.CutSuffix(s, "%"); ok {
		n, plus := strings.CutPrefix(n, "+")
		p, err := parsePercent(strings.TrimSpace(n))
		switch {
		case err != nil:
			return m, s, wrong(s, "not a percentage", requeueHint)
		case !plus:
			return m, s, wrong(s, "a percentage of what?", "percent are on top of what the job has: write requeue=+"+n+"%")
		case p <= 0:
			return m, s, wrong(s, "it is no more than now", requeueHint)
		case p > mostRequeueShare:
			return m, s, wrong(s, "out of range", "at most +1000%: eleven times what the job has")
		}
		return More{Share: p / 100}, "+" + strconv.FormatFloat(p, 'f', -1, 64) + "%", nil
	}
	b, err := rss.ParseBytes(s)
	switch {
	case err != nil || strings.HasPrefix(s, "+"):
		return m, s, wrong(s, "neither a size nor a percentage", requeueHint)
	case b < rss.MiB:
		return m, s, wrong(s, "the size is below 1 MiB", requeueHint)
	}
	return More{Size: b}, formatSize(b), nil
}
