package doctor

import "fmt"

// PtraceFacts are what ptrace may do here.
type PtraceFacts struct {
	Supported bool   // the processor is one that trimming by ptrace was run on
	Arch      string // its name
	// Scope is Yama's ptrace_scope, empty where the kernel has no Yama.
	Scope string
	// Filters is how many seccomp filters we have, -1 where the kernel does not
	// say, and Seccomp the mode: what we start has the same.
	Seccomp, Filters int
	// Dumpable is PR_GET_DUMPABLE of our own process.
	Dumpable bool
	// Refused says why a child of ours may not be trimmed, and Failed what
	// stopping it met; both empty where it worked.
	Refused, Failed string
}

// Ptrace says whether --trim ptrace and --trim auto would work.
func Ptrace(f PtraceFacts) Check {
	c := Check{Name: NamePtrace, Status: OK, Source: "a child was stopped and let go"}
	const hook = "keep --trim hook, the default, which needs no ptrace"
	switch {
	case !f.Supported:
		c.Status, c.Source = Off, "the program was built for "+f.Arch
		c.Found = "--trim ptrace was only ever run on amd64"
		c.Do = hook
		return c
	case f.Scope != "" && f.Scope != "0" && f.Scope != "1":
		c.Status, c.Source = Off, "/proc/sys/kernel/yama/ptrace_scope"
		c.Found = "Yama's ptrace_scope is " + f.Scope + ": nobody may stop a process for a trim"
		c.Do = hook
		return c
	case f.Refused != "":
		c.Status, c.Found, c.Do = Off, "a child of rsswarden may not be trimmed: "+f.Refused, hook
		return c
	case f.Failed != "":
		c.Status, c.Found, c.Do = Off, "a child of rsswarden could not be stopped: "+f.Failed, hook+"; in a container, its seccomp profile may forbid ptrace"
		return c
	}
	c.Found = "--trim auto and --trim ptrace can stop what rsswarden starts"
	switch f.Scope {
	case "":
		c.Found += "; no Yama"
	case "0":
		c.Found += "; Yama's ptrace_scope is 0"
	case "1":
		c.Found += "; Yama's ptrace_scope is 1: rsswarden trim and attach may trim nobody by it"
	}
	if f.Seccomp != 0 {
		c.Found += fmt.Sprintf("; under %d seccomp filters, as is what it starts", f.Filters)
	}
	if !f.Dumpable {
		c.Status = Limited
		c.Found += "; this rsswarden is not dumpable: its file may not be read by you"
		c.Do = "chmod a+r the program"
	}
	return c
}
