package event

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

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
	bad := func(why string) (syscall.Signal, error) {
		return 0, &RuleError{Part: s, Why: why, Hint: "signals are written USR2, SIGUSR2, 12 or RTMIN+3"}
	}
	if s == "" {
		return bad("no signal")
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		if n < 1 || n >= uint64(len(signals)) && n < rtMin || n > rtMax {
			return bad(fmt.Sprintf("no signal has the number %d", n))
		}
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for n, known := range signals {
		if known == name && n > 0 {
			return syscall.Signal(n), nil
		}
	}
	switch name {
	case "POLL":
		return syscall.SIGIO, nil
	case "IOT":
		return syscall.SIGABRT, nil
	case "RTMIN":
		return rtMin, nil
	case "RTMAX":
		return rtMax, nil
	}
	if n, ok := offset(name, "RTMIN+"); ok {
		return syscall.Signal(rtMin + n), nil
	}
	if n, ok := offset(name, "RTMAX-"); ok {
		return syscall.Signal(rtMax - n), nil
	}
	return bad("unknown signal")
}

// AskBySignal reads the signal that asks for a checkpoint, and whom: USR2, USR2@rank0.
// Of the rule that it returns the action alone means something. Its errors are of
// type [*RuleError], about the signal alone.
func AskBySignal(s string) (Rule, error) {
	a, arg, why, hint := parseAction(string(ActionSignal)+"="+s, Actions)
	if n, err := ParseSignal(s); err == nil && uncatchable(n) {
		hint = "name one that a program can catch, such as USR1 or USR2"
	}
	if why != "" {
		return Rule{}, &RuleError{Part: s, Why: why, Hint: hint}
	}
	return Rule{Cond: Cond{Kind: KindPercent, Percent: 100}, Action: a, Arg: arg}, nil
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
